# qemu-x86_64.cmake -- use this machine's compiler, and qemu to run the tests on the x86-64 processor named by QEMU_CPU.
# SPDX-License-Identifier: Apache-2.0
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER gcc)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-x86_64)
