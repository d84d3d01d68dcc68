// Stands in for NVIDIA's management library: two cards, an RTX 4090 with a display and a CUDA program of 1 GiB on the
// second. Signatures and structures: nvml.h of CUDA 12 (NVML API reference). What is missing here old drivers miss too.
#include <stdio.h>
#include <string.h>

typedef int nvmlReturn_t;
typedef struct card *nvmlDevice_t;
typedef struct { unsigned long long total, free, used; } memory_v1;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned int pid; unsigned long long used; unsigned int instance, compute; } process_info;
enum { OK = 0, NOT_SUPPORTED = 3, SMALL = 7 };

static struct card { int index; } cards[2] = {{0}, {1}};
static const unsigned long long MIB = 1ull << 20;

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) { return OK; }
nvmlReturn_t nvmlInit_v2(void) { return OK; }
const char *nvmlErrorString(nvmlReturn_t result) { return "Not Supported"; }
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) { *count = 2; return OK; }
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    *device = &cards[index];
    return index < 2 ? OK : 2;
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    snprintf(name, length, "NVIDIA GeForce RTX 4090");
    return OK;
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    snprintf(uuid, length, "GPU-1d3f2c5a-0000-4000-8000-00000000000%d", device->index);
    return OK;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, memory_v1 *memory) {
    *memory = (memory_v1){24564 * MIB, 23552 * MIB, 1012 * MIB};
    return OK;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, memory_v2 *memory) {
    if (memory->version != (sizeof(memory_v2) | 2u << 24)) return 25;
    memory->total = 24564 * MIB;
    memory->reserved = 500 * MIB;
    memory->used = 512 * MIB;
    memory->free = 23552 * MIB;
    return OK;
}
nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *value) { *value = 4; return OK; }
nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *value) { *value = 16; return OK; }
nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, unsigned int *value) {
    *value = device->index == 0;
    return OK;
}
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, unsigned int *on) {
    return NOT_SUPPORTED;
}
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts) {
    *milliwatts = 123456;
    return OK;
}
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned int *value) { *value = 55; return OK; }
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, process_info *found) {
    unsigned int room = *count;
    *count = device->index;
    if (room < *count) return SMALL;
    if (*count) found[0] = (process_info){77, 1024 * MIB, 0, 0};
    return OK;
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, process_info *found) {
    unsigned int room = *count;
    *count = 1;
    if (room < 1) return SMALL;
    found[0] = (process_info){78, ~0ull, 0, 0};  // NVML_VALUE_NOT_AVAILABLE
    return OK;
}
