#!/usr/bin/env bash
# Build llama.cpp's tools (llama-server, llama-bench, llama-fit-params) for the CPU, from the source distribution of
# llama-cpp-python on PyPI, which carries llama.cpp. Prints the folder of the binaries as its last line; a second call
# finds them built. Needs cmake, a C++17 compiler and about 1 GB of disk; takes 10 to 40 minutes on two cores.
#
#   ENGINE_CACHE   where it is built (default ~/.cache/offload-advisor/llama.cpp-<version>)
#   ADVISOR_ENGINE_SDIST   a source distribution that is already here (default: downloaded with pip)
#   ADVISOR_ENGINE_JOBS    parallel compilations (default: 2)
set -euo pipefail

version=0.3.36
commit=0c1e57098
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
tools=(llama-server llama-bench llama-fit-params)

cache=${ENGINE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/offload-advisor/llama.cpp-$version}
python=${PYTHON:-python3}
source_dir=$cache/llama_cpp_python-$version/vendor/llama.cpp
build_dir=$cache/build
sdist=${ADVISOR_ENGINE_SDIST:-$cache/llama_cpp_python-$version.tar.gz}

built() {
  local tool
  for tool in "${tools[@]}"; do [[ -x $build_dir/bin/$tool ]] || return 1; done
}

if built; then
  echo "$build_dir/bin"
  exit 0
fi

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9

if [[ ! -f $sdist ]]; then
  "$python" -m pip download --quiet --no-deps --no-binary llama-cpp-python --dest "$cache" "llama-cpp-python==$version" >&2
fi
echo "$sha256  $sdist" | sha256sum --check --quiet >&2

if [[ ! -f $source_dir/CMakeLists.txt ]]; then
  tar --extract --gzip --file "$sdist" --directory "$cache" "llama_cpp_python-$version/vendor/llama.cpp"
fi

# No web page in llama-server (its assets would be downloaded), no HTTPS, nothing that depends on this very CPU.
cmake -S "$source_dir" -B "$build_dir" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
  -DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON -DGGML_OPENMP=OFF \
  -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_TOOLS=ON \
  -DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF \
  -DLLAMA_BUILD_COMMIT="$commit" -DLLAMA_BUILD_NUMBER=0 >&2
cmake --build "$build_dir" --target "${tools[@]}" --parallel "${ADVISOR_ENGINE_JOBS:-2}" >&2

echo "$build_dir/bin"
