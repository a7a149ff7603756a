// The words that the runtime's headers decorate their declarations with. NVIDIA's own file of this name is for nvcc
// and comes in another wheel; a host compiler needs no more than this, and finds theirs first where it is there.
#pragma once

#define CUDARTAPI
#define CUDART_CB
#define CUDARTAPI_CDECL

#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __align__(bytes)
#define __device_builtin__
#define __cudart_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__

#define __host__
#define __device__
#define __global__
#define __constant__
#define __managed__
