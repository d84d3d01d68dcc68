/* The calls of the CUDA driver API that service/measure.py makes, for two GPUs whose memory is RAM: the second one
 * refuses to allocate. `live` counts what is held; the library's user must give all of it back. */
#include <stdlib.h>
#include <string.h>

static int current = -1;
int live = 0;

int cuInit(unsigned flags) { return flags != 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return index < 0 || index > 1; }
int cuDeviceGetUuid(unsigned char *uuid, int device) { memset(uuid, 0x10 + device, 16); return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(size_t)(device + 1); live++; return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; live--; return 0; }
int cuCtxSetCurrent(void *context) { current = (int)(size_t)context - 1; return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuMemAllocHost_v2(void **host, size_t size) { *host = malloc(size); live++; return *host == NULL; }
int cuMemFreeHost(void *host) { free(host); live--; return 0; }
int cuMemAlloc_v2(unsigned long long *target, size_t size) {
    if (current == 1) return 2; /* CUDA_ERROR_OUT_OF_MEMORY */
    *target = (unsigned long long)(size_t)malloc(size);
    live++;
    return *target == 0;
}
int cuMemFree_v2(unsigned long long target) { free((void *)(size_t)target); live--; return 0; }
int cuMemcpyHtoD_v2(unsigned long long target, const void *host, size_t size) {
    memcpy((void *)(size_t)target, host, size);
    return 0;
}
