# qemu-x86_64.cmake -- this machine's compiler, and qemu to run the tests on another x86-64 processor: QEMU_CPU names it.
# SPDX-License-Identifier: Apache-2.0
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER gcc)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-x86_64)
