#!/bin/sh
# In the image: takes away what g++ brings and the cpu target never uses, so that it costs 63 MB and not 300. Kernels include no headers,
# are not optimised at link time, and link no sanitizer and nothing statically but libgcc.
set -eu

gcc="$(dirname "$(g++ -print-prog-name=cc1plus)")"
libraries="$(dirname "$(g++ -print-file-name=libc.so)")"
rm -rf /usr/include /usr/bin/*lto-dump* /usr/bin/*gold* /usr/bin/*dwp* /usr/bin/*gprof* /usr/bin/*gcov* /usr/bin/*-cpp-*
rm -f "$gcc"/lto1 "$gcc"/lto-wrapper "$gcc"/collect-ld "$gcc"/libasan* "$gcc"/libtsan* "$gcc"/libubsan* "$gcc"/liblsan* "$gcc"/libstdc++*.a \
  "$gcc"/libsupc++.a "$gcc"/libgomp* "$gcc"/libitm* "$gcc"/libatomic.a "$gcc"/libquadmath* "$gcc"/libcaf*
rm -f "$libraries"/libasan.so* "$libraries"/libtsan.so* "$libraries"/libubsan.so* "$libraries"/liblsan.so* "$libraries"/libgprofng* \
  "$libraries"/libc.a "$libraries"/libm*.a "$libraries"/libpthread.a "$libraries"/libdl.a "$libraries"/librt.a "$libraries"/libresolv.a \
  "$libraries"/libnsl* "$libraries"/libtirpc*
# g++ asks the C compiler what this processor has, which is part of the key of what it compiles; that of C++ answers the same.
ln -sf cc1plus "$gcc/cc1"
# Still a compiler?
printf 'extern "C" float f(float x) { return x * __builtin_sqrtf(x); }\n' >/tmp/kernel.cc
g++ -O3 -march=native -shared -fPIC -fno-math-errno -o /tmp/kernel.so /tmp/kernel.cc -lmvec -lm
g++ -march=native -Q --help=target | grep -q march=
rm -f /tmp/kernel.cc /tmp/kernel.so
