# hardening.cmake -- flags that stop many exploits of memory errors, where the compiler and the system have them. They cost no measurable
# time (docs/reliability.md). tests/api/elf.sh checks the built files.
# SPDX-License-Identifier: Apache-2.0
include(CheckCCompilerFlag)
include(CheckPIESupported)
check_pie_supported()
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(hardening)
foreach(flag -fstack-protector-strong -fcf-protection)
  string(MAKE_C_IDENTIFIER "has${flag}" known)
  check_c_compiler_flag(${flag} ${known})
  if(${known})
    list(APPEND hardening ${flag})
  endif()
endforeach()
if(NOT CMAKE_C_FLAGS MATCHES "sanitize|profile-instr") # sanitizers replace the functions that FORTIFY checks
  set(fortify 3)
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_C_COMPILER_VERSION VERSION_LESS 12)
    set(fortify 2) # level 3 is only known to later ones, and glibc warns
  endif()
  list(APPEND hardening $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE> $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=${fortify}>)
endif()
target_compile_options(relpos_flags INTERFACE ${hardening})
if(CMAKE_SYSTEM_NAME STREQUAL Linux)
  target_link_options(relpos_flags INTERFACE -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
endif()

# relpos_exports(TARGET): export only the functions of the public headers
function(relpos_exports target)
  get_target_property(type ${target} TYPE)
  if(CMAKE_SYSTEM_NAME STREQUAL Linux AND NOT type STREQUAL STATIC_LIBRARY)
    target_link_options(${target} PRIVATE "-Wl,--version-script=${PROJECT_SOURCE_DIR}/packaging/cmake/exports.map")
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${PROJECT_SOURCE_DIR}/packaging/cmake/exports.map")
  endif()
endfunction()
