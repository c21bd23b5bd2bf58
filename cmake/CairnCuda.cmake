# CUDA, if there is a toolkit that works: sets CAIRN_HAVE_CUDA and enables the language, or reports the reason why not.
#
# Build settings:   -DCAIRN_CUDA=OFF            without CUDA
#                   -DCMAKE_CUDA_COMPILER=NVCC  which one; else nvcc of PATH, CUDA_PATH, CUDA_HOME or /usr/local/cuda
#                   -DCAIRN_ALL_GPUS=ON         code for all supported GPUs, for packages (preset package)
#                   -DCMAKE_CUDA_ARCHITECTURES=LIST
option(CAIRN_ALL_GPUS "Make GPU code for every supported GPU, not only for this machine's" OFF)

# Packages have code for A100 and H100, and intermediate code from which the driver makes code for newer GPUs.
# Other builds have one architecture, which takes a third of the time to compile (17 s instead of 52, CUDA 13.0):
# the GPU of this machine or, without one, intermediate code for all, which costs the first process on a GPU some 10 s.
function(cairn_gpu_architectures result)
  set(${result} 80-real 90-real 90-virtual PARENT_SCOPE)
  if(NOT CAIRN_ALL_GPUS)
    set(${result} 80-virtual PARENT_SCOPE)
    find_program(CAIRN_NVIDIA_SMI nvidia-smi)
    if(CAIRN_NVIDIA_SMI)
      execute_process(COMMAND "${CAIRN_NVIDIA_SMI}" --query-gpu=compute_cap --format=csv,noheader
                      OUTPUT_VARIABLE found ERROR_QUIET)
      if(found MATCHES "^([0-9]+)\\.([0-9])" AND CMAKE_MATCH_1 GREATER_EQUAL 8)
        set(${result} ${CMAKE_MATCH_1}${CMAKE_MATCH_2}-real PARENT_SCOPE)
      endif()
    endif()
  endif()
endfunction()

set(CAIRN_HAVE_CUDA OFF)
if(CAIRN_CUDA)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(CAIRN_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATH_SUFFIXES bin PATHS /usr/local/cuda)
    if(CAIRN_NVCC)
      set(CMAKE_CUDA_COMPILER "${CAIRN_NVCC}")
    endif()
  endif()
  if(NOT DEFINED CMAKE_CUDA_HOST_COMPILER AND NOT DEFINED ENV{CUDAHOSTCXX})
    set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    cairn_gpu_architectures(CMAKE_CUDA_ARCHITECTURES)
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # the gpu layer links it
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit QUIET)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake up to 3.25 does not know that nvcc has C++20
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    set(CMAKE_CUDA_EXTENSIONS OFF)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.0)
      message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION}: 12.0 or newer is needed for C++20; building without")
    elseif(NOT TARGET CUDA::cudart_static)
      message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION}: no cudart_static; building without")
    else()
      set(CAIRN_HAVE_CUDA ON)
      message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION}: ${CMAKE_CUDA_COMPILER}, for ${CMAKE_CUDA_ARCHITECTURES}")
    endif()
  else()
    message(STATUS "CUDA: no nvcc that works with ${CMAKE_CXX_COMPILER}; building without")
  endif()
endif()
