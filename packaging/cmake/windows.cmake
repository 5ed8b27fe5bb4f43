# windows.cmake -- build for Windows on x86-64 with clang and the headers and libraries of Debian's gcc-mingw-w64-x86-64; run programs
# with wine. gcc cannot be used: it does not align the stack for vectors of 32 bytes and more (GCC bug 54412). See docs/platforms.md.
# SPDX-License-Identifier: Apache-2.0
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER clang)
set(CMAKE_C_COMPILER_TARGET x86_64-w64-mingw32)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
set(CMAKE_FIND_ROOT_PATH /usr/x86_64-w64-mingw32)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
file(GLOB libgcc /usr/lib/gcc/x86_64-w64-mingw32/*-posix) # clang does not search this folder
string(JOIN " " link_flags -fuse-ld=lld -static "-L${libgcc}")
set(CMAKE_EXE_LINKER_FLAGS_INIT "${link_flags}")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "${link_flags}")
find_program(WINE NAMES wine64 wine PATHS /usr/lib/wine NO_CMAKE_FIND_ROOT_PATH)
set(CMAKE_CROSSCOMPILING_EMULATOR ${WINE})
