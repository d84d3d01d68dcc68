// What CMake would write: the version that ggml reports.
#pragma once
#define GGML_VERSION "rig"
#define GGML_COMMIT "rig"
