# libraries.cmake -- find the libraries that the models, the program and the tests need. The library relpos needs none of them.
# Sets models, program and RELPOS_BUILD_TESTS. If a library is missing, the targets that need it are turned off, and
# relpos_report_skipped lists them. With RELPOS_COMPLETE, and in a wheel, a missing library is an error.
# SPDX-License-Identifier: Apache-2.0
set(models OFF) # build relpos_t5 and the libraries that it contains
set(skipped)
set(missing)
if(RELPOS_BUILD_CLI OR RELPOS_BUILD_TESTS)
  if(RELPOS_STATIC_IO)
    set(ENV{PKG_CONFIG_PATH} ${RELPOS_STATIC_IO}/lib/pkgconfig)
  endif()
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(io QUIET IMPORTED_TARGET jansson libzip zlib)
    pkg_check_modules(png QUIET IMPORTED_TARGET libpng)
    if(NOT RELPOS_BUILD_PYTHON) # a wheel must not need it; relpos.t5 uses h5py
      pkg_check_modules(hdf5 QUIET IMPORTED_TARGET hdf5) # optional: t5 proteins -o x.h5
    endif()
    pkg_check_modules(cmocka QUIET IMPORTED_TARGET cmocka)
    foreach(name jansson libzip zlib libpng)
      pkg_check_modules(has_${name} QUIET ${name})
      if(NOT has_${name}_FOUND)
        list(APPEND missing ${name})
      endif()
    endforeach()
  else()
    set(missing pkg-config jansson libzip zlib libpng)
  endif()
  if(RELPOS_BUILD_TESTS AND NOT cmocka_FOUND)
    list(APPEND missing cmocka)
    set(skipped "the tests")
    set(RELPOS_BUILD_TESTS OFF)
  endif()
  if(io_FOUND)
    set(models ON)
  else()
    set(skipped "the library relpos_t5, the program relpos and the tests")
  endif()
  if(NOT png_FOUND AND models)
    set(skipped "the program relpos and the tests")
  endif()
  if(NOT io_FOUND OR NOT png_FOUND)
    set(RELPOS_BUILD_CLI OFF)
    set(RELPOS_BUILD_TESTS OFF)
  endif()
endif()
set(program OFF) # build the program; the tests need it too, because they link all of it except main
if(RELPOS_BUILD_CLI OR RELPOS_BUILD_TESTS)
  set(program ON)
endif()

function(relpos_report_skipped)
  if(NOT skipped)
    return()
  endif()
  list(JOIN missing ", " names)
  set(debian)
  foreach(name ${missing})
    string(REGEX REPLACE "^(lib)?(jansson|zip|png|cmocka)$" "lib\\2-dev" package ${name})
    string(REPLACE zlib zlib1g-dev package "${package}")
    string(APPEND debian " ${package}")
  endforeach()
  if(RELPOS_BUILD_PYTHON)
    # CMake prints indented lines as they are and wraps the others, so the commands have lines of their own.
    message(FATAL_ERROR "relpos: not found: ${names}, which the command relpos and the module relpos.t5 need. "
      "On Debian or Ubuntu, install the packages as root, and run pip again:\n"
      "    apt install${debian}\n"
      "Or build attention alone, without the command and relpos.t5:\n"
      "    pip install . --config-settings=cmake.define.RELPOS_BUILD_CLI=OFF")
  endif()
  set(mode NOTICE)
  if(RELPOS_COMPLETE)
    set(mode FATAL_ERROR)
  endif()
  message(${mode} "relpos: skipped: ${skipped}. Not found: ${names} (Debian: apt install${debian}; then configure again).")
endfunction()
if(RELPOS_COMPLETE OR RELPOS_BUILD_PYTHON) # stop before anything else is looked for
  relpos_report_skipped()
endif()
