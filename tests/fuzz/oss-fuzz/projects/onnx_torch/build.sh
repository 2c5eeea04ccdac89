#!/bin/bash -eu
# Builds one program for each target of docs/fuzzing.md, with the official cases as what they begin with.
declare -A seeds=(
  [prepare]=models [run]=models [differential]=models [plan]=models [saved]=saved [file]=models
  [image]=images [text]=texts
)
targets=("${!seeds[@]}")

# torch is compiled with GNU's C++ library, and so must be what links it. Its types are hidden in part.
export CXXFLAGS="${CXXFLAGS/-stdlib=libc++/} -fno-sanitize=vptr,function"

# The image's Clang comes without omp.h and the library behind it.
llvm=${LLVM:-/usr/lib/llvm-18}
openmp=$(dirname "$(find "$llvm/lib/clang" -name omp.h)")
export CXXFLAGS="$CXXFLAGS -idirafter $openmp" LDFLAGS="${LDFLAGS:-} -L$llvm/lib"

python3 -m venv /tmp/environment
. /tmp/environment/bin/activate
pip install -r requirements/dev.txt

# The package as users have it, for what makes the files to begin with.
CC=clang CXX=clang++ CFLAGS="" CXXFLAGS="-idirafter $openmp" pip install --no-build-isolation .

# How far it is optimized, CXXFLAGS say.
cmake -G Ninja -S . -B /tmp/build -D CMAKE_BUILD_TYPE=Release -D CMAKE_CXX_FLAGS_RELEASE="" \
  -D ONNX_TORCH_LIBFUZZER=ON -D ONNX_TORCH_BUILD_PYTHON=OFF \
  -D ONNX_TORCH_INSTALL=OFF -D ONNX_TORCH_CUDA=OFF -D ONNX_TORCH_CCACHE=OFF
ninja -C /tmp/build "${targets[@]/#/onnx_torch_libfuzzer_}"

python tests/fuzz/seeds.py /tmp/seeds
libraries=$(python -c "import torch; print(torch.__path__[0])")/lib
for target in "${targets[@]}"; do
  program=$OUT/onnx_torch_libfuzzer_$target
  cp "/tmp/build/tests/fuzz/onnx_torch_libfuzzer_$target" "$program"
  patchelf --set-rpath "\$ORIGIN/lib" "$program"
  zip -qjr "${program}_seed_corpus.zip" "/tmp/seeds/${seeds[$target]}"
done

# What is there where the targets run: they are copied without what was installed here.
mkdir -p "$OUT/lib"
ldd "/tmp/build/tests/fuzz/onnx_torch_libfuzzer_run" | awk '$3 ~ /^\// && $3 !~ /\/(libc|libm|ld-linux|libpthread|libdl)[-.]/ { print $3 }' |
  xargs -I{} cp -n {} "$OUT/lib/"
cp -n "$libraries"/*.so* "$OUT/lib/" || true
