#!/usr/bin/env bash
# Build an engine's tools: scripts/build_engine.sh [llama.cpp|ik_llama.cpp] [cpu|cuda]. Prints the folder of the binaries
# as its last line; a second call finds them built. llama.cpp is in the source distribution of llama-cpp-python on PyPI,
# ik_llama.cpp is cloned. Needs cmake, a C++17 compiler (for cuda also nvcc) and about 1 GB of disk; llama.cpp for the
# CPU takes 10 to 40 minutes on two cores.
#
#   ENGINE_CACHE   where it is built (default ~/.cache/offload-advisor/<engine>-<version>[-cuda])
#   ADVISOR_ENGINE_SDIST   a source distribution of llama-cpp-python that is already here (default: downloaded with pip)
#   ADVISOR_ENGINE_SOURCE  what ik_llama.cpp is cloned from (default: its repository on GitHub)
#   ADVISOR_ENGINE_JOBS    parallel compilations (default: 2)
set -euo pipefail

engine=${1:-llama.cpp}
backend=${2:-cpu}
case $engine in
  llama.cpp)
    version=0.3.36
    commit=0c1e57098
    tools=(llama-server llama-bench llama-fit-params) ;;
  ik_llama.cpp)
    commit=8337e4cd3861406fc04e0854b1409cd1b027fbc9
    version=${commit:0:9}
    tools=(llama-server llama-sweep-bench) ;;
  *) echo "no engine $engine: llama.cpp or ik_llama.cpp" >&2; exit 2 ;;
esac
case $backend in
  cpu) suffix= ;;
  cuda) suffix=-cuda ;;
  *) echo "no back end $backend: cpu or cuda" >&2; exit 2 ;;
esac
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e

cache=${ENGINE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/offload-advisor/$engine-$version$suffix}
python=${PYTHON:-python3}
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

if [[ $engine == llama.cpp ]]; then
  source_dir=$cache/llama_cpp_python-$version/vendor/llama.cpp
  if [[ ! -f $sdist ]]; then
    "$python" -m pip download --quiet --no-deps --no-binary llama-cpp-python --dest "$cache" "llama-cpp-python==$version" >&2
  fi
  echo "$sha256  $sdist" | sha256sum --check --quiet >&2
  if [[ ! -f $source_dir/CMakeLists.txt ]]; then
    tar --extract --gzip --file "$sdist" --directory "$cache" "llama_cpp_python-$version/vendor/llama.cpp"
  fi
  # No web page in llama-server: its assets would be downloaded.
  options=(-DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_UI=OFF
    -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_COMMIT="$commit" -DLLAMA_BUILD_NUMBER=0)
else
  source_dir=$cache/source
  if [[ ! -d $source_dir/.git ]]; then
    git clone --quiet --filter=blob:none --no-checkout \
      "${ADVISOR_ENGINE_SOURCE:-https://github.com/ikawrakow/ik_llama.cpp}" "$source_dir" >&2
  fi
  git -C "$source_dir" checkout --quiet "$commit" >&2
  options=(-DLLAMA_BUILD_EXAMPLES=ON -DLLAMA_CURL=OFF)
fi

# For the CPU nothing that depends on this very one; with CUDA, what this very machine has, as its users build it.
if [[ $backend == cuda ]]; then
  options+=(-DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=native -DGGML_NATIVE=ON)
else
  options+=(-DGGML_OPENMP=OFF -DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON)
fi
cmake -S "$source_dir" -B "$build_dir" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
  -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=ON "${options[@]}" >&2
cmake --build "$build_dir" --target "${tools[@]}" --parallel "${ADVISOR_ENGINE_JOBS:-2}" >&2

echo "$build_dir/bin"
