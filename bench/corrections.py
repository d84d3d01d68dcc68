"""What is known of published runs beyond their records: which to distrust, what a record got wrong, which build it was.

Every entry comes from the thread that the record names, from other posts of its author, or from a neighbour of the
same table; none was chosen for its error.
"""

from __future__ import annotations

from typing import Any

# Runs that say nothing of the config they state; their authors or the record explain why.
DISTRUSTED = {
    "disc357-AesSedai-1": "CUDA and BLAS build with hidden GPUs",
    "disc357-AesSedai-3": "CUDA and BLAS build with hidden GPUs",
    "disc357-AesSedai-7": "CUDA build with hidden GPUs",
    "disc491-Ph0rk0z-4": "R8 tensors on GPUs, not in the header",
    "disc201-VinnyG9-1": "BIOS snoop mode",
    "disc258-ubergarm-1": "half of its twin's speed, no stated fact explains it",
    "disc548-Gaolingx-2": "bf16 with -rtr, misuse by the maintainer's word",
    "disc562-ikawrakow-1": "Vulkan backend",
    "pr598-ubergarm-3": "Vulkan backend",
    "issue255-binjiechen-1": "BLAS build",
    "issue490-nux-4": "NUMA accident between two builds",
    "pr520-quasar-1": "placement not published",
    "pr520-quasar-2": "placement not published",
    "lpr12922-4onen-2": "development branch, below any bound",
    "pr1821-davidsyoung-1": "summary table, settings inferred",
    "pr1821-davidsyoung-2": "summary table, settings inferred",
    "pr1821-davidsyoung-3": "summary table, settings inferred",
    "pr1821-davidsyoung-4": "summary table, settings inferred",
}

# Published comparisons that compare more than they say; their runs stand, each for itself.
NO_PAIRS = {
    "panchovix-v3-q3kxl-mla": "build and placement differ too, and the machine was in use during one run",
}

# The commit of these runs is known better than by its day: runs before and after a change under one date.
BUILD_DATES = {
    "issue490-ikawrakow-b1": "2025-05-25",
    "issue490-nux-5": "2025-05-25",
    "pr370-AesSedai-1": "2025-05-05",
    "pr370-ubergarm-10": "2025-05-05",
    "pr559-ubergarm-4": "2025-06-25",
    "pr559-ubergarm-5": "2025-06-25",
    "pr559-ubergarm-6": "2025-06-25",
    "pr612-ubergarm-5": "2025-07-20",
    "pr700-ikawrakow-1": "2025-08-16",
    "pr700-ubergarm-2": "2025-08-16",
    "pr700-ubergarm-3": "2025-08-09",
}

# CPUs that a record leaves out and its author names elsewhere: of the author's machine with that GPU.
_7950X = {"model": "AMD Ryzen 9 7950X", "sockets": 1, "physical_cores": 16}
_5975WX = {"model": "AMD Ryzen Threadripper PRO 5975WX", "sockets": 1, "physical_cores": 32}
_XEONS = {"model": "2x Intel Xeon Scalable, AVX512 without VNNI (model not stated)", "sockets": 2, "physical_cores": 48}
CPUS: dict[str, dict[str, Any]] = {
    "issue255-ikawrakow": _7950X,
    "pr386-ikawrakow": _7950X,
    "pr400-ikawrakow": _5975WX,
    "pr589-ikawrakow": _7950X,
    "pr700-ikawrakow": _7950X,
    "pr762-Ph0rk0z": _XEONS,
}
RAMS: dict[str, dict[str, Any]] = {"pr762-Ph0rk0z": {"type": "DDR4", "channels": 12, "mts": 2400}}
# Records that count the cores of one of two sockets.
CORES = {"pr273-saood06": 24, "issue490-nux": 32}

# Mixes whose header says a plain type, and whose file is repacked (its name, or the author, says so).
MIXES = {
    "disc258-magikRUKKOLA-5": "exps=q4_K_r4,*=q6_K",
}
# Files whose tensors in RAM were repacked before the run: as with -rtr.
REPACKED = ("disc491-Ph0rk0z-5",)

# Parts of commands that are words: what the thread says they stand for.
COMMANDS = (
    (" -ub (see n_ubatch)", ""),
    ("(offload only active experts)", "-ooae"),
    ("all experts on the CPU (-ot exps=CPU),", "-ot exps=CPU"),
    (r'"blk\.(7 layers, list not published for this row)\.ffn_.*=CUDA0"', r'"blk\.(3|4|5|6|7|8|9)\.ffn_.*=CUDA0"'),
    (
        r'"blk\.(7 layers, list not published for this row)\.ffn_.*=CUDA1"',
        r'"blk\.(10|11|12|13|14|15|16)\.ffn_.*=CUDA1"',
    ),
)
# Commands without -mla whose tokens slow down with depth as with a latent cache.
LATENT = ("disc477-Panchovix-1",)
# Fused experts that a command leaves out and the thread names.
FUSED = ("pr400-ikawrakow",)
