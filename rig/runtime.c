// A CUDA runtime whose memory is only addresses: an allocation gets a range of addresses that nothing may touch, and
// never fails; copies and fills do nothing; the first kernel ends the program, for by then every buffer has been printed.
//
// RIG_FREE_MIB: what each card says to have free, separated by commas. RIG_CAPABILITY: of all cards (default 8.9).
// RIG_LOG: a file that gets a line for what each card gives and takes back: `CUDA0 BYTES`, negative where it is freed.
#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST 16
#define KEPT 65536

struct range { void * start; size_t size; int device; };

static size_t       card_free[MOST];
static int          n_cards = -1, current, n_ranges;
static struct range ranges[KEPT];

static int cards(void) {
    if (n_cards < 0) {
        const char * text = getenv("RIG_FREE_MIB");
        for (n_cards = 0; text && *text && n_cards < MOST; n_cards++) {
            card_free[n_cards] = strtoull(text, (char **) &text, 10) << 20;
            text += *text == ',';
        }
    }
    return n_cards;
}

static void note(int device, long long size) {
    const char * path = getenv("RIG_LOG");
    FILE * file = path && device >= 0 ? fopen(path, "a") : NULL;
    if (!file) return;
    fprintf(file, "CUDA%d %lld\n", device, size);
    fclose(file);
}

static void * reserve(size_t size, int protection, int device) {
    void * start = mmap(NULL, size ? size : 1, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED || n_ranges == KEPT) return NULL;
    ranges[n_ranges++] = (struct range) { start, size, device };
    return start;
}

static cudaError_t release(void * start) {
    for (int i = 0; i < n_ranges; i++) {
        if (ranges[i].start != start) continue;
        munmap(start, ranges[i].size ? ranges[i].size : 1);
        note(ranges[i].device, -(long long) ranges[i].size);
        ranges[i] = ranges[--n_ranges];
        break;
    }
    return cudaSuccess;
}

static void stop(const char * what) {
    fprintf(stderr, "rig: stopped at %s\n", what);
    fflush(NULL);
    sleep(5);  // another thread writes the engine's log: by then the buffers are in it, and the reader has ended this
    _exit(0);
}
void rig_stop(void) { stop("a kernel's launcher, which is left out"); }

cudaError_t cudaGetDeviceCount(int * count) { *count = cards(); return *count ? cudaSuccess : cudaErrorNoDevice; }
cudaError_t cudaSetDevice(int device) { current = device; return cudaSuccess; }
cudaError_t cudaGetDevice(int * device) { *device = current; return cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t * free_bytes, size_t * total) {
    cards();
    *free_bytes = *total = card_free[current];
    return cudaSuccess;
}
static int capability(int minor) {
    const char * text = getenv("RIG_CAPABILITY");
    int major_of = 8, minor_of = 9;
    if (text) sscanf(text, "%d.%d", &major_of, &minor_of);
    return minor ? minor_of : major_of;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp * prop, int device) {
    cards();
    memset(prop, 0, sizeof(*prop));
    snprintf(prop->name, sizeof(prop->name), "stand-in card %d", device);
    prop->totalGlobalMem = card_free[device];
    prop->major = capability(0);
    prop->minor = capability(1);
    prop->multiProcessorCount = 128;
    prop->warpSize = 32;
    prop->sharedMemPerBlock = 48 << 10;
    prop->sharedMemPerBlockOptin = 99 << 10;
    prop->sharedMemPerMultiprocessor = 100 << 10;
    prop->maxThreadsPerBlock = 1024;
    prop->regsPerBlock = 65536;
    prop->pciBusID = device + 1;
    return cudaSuccess;
}
cudaError_t cudaMalloc(void ** start, size_t size) {
    note(current, (long long) size);
    return (*start = reserve(size, PROT_NONE, current)) ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaMallocManaged(void ** start, size_t size, unsigned flags) { (void) flags; return cudaMalloc(start, size); }
cudaError_t cudaFree(void * start) { return release(start); }
cudaError_t cudaMallocHost(void ** start, size_t size) {
    return (*start = reserve(size, PROT_READ | PROT_WRITE, -1)) ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void * start) { return release(start); }
cudaError_t cudaDeviceCanAccessPeer(int * can, int device, int peer) { (void) device; (void) peer; *can = 1; return cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char * text, int length, int device) {
    snprintf(text, length, "0000:%02x:00.0", device + 1);
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t * stream, unsigned flags) { (void) flags; *stream = (cudaStream_t) 1; return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t * event, unsigned flags) { (void) flags; *event = (cudaEvent_t) 1; return cudaSuccess; }
const char * cudaGetErrorString(cudaError_t error) { return error == cudaErrorMemoryAllocation ? "out of memory" : "error"; }
CUresult cuGetErrorString(CUresult error, const char ** text) { (void) error; *text = "error"; return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice * device, int number) { *device = number; return CUDA_SUCCESS; }
cudaError_t cudaLaunchKernel(const void * f, dim3 grid, dim3 block, void ** args, size_t shared, cudaStream_t stream) {
    (void) f; (void) grid; (void) block; (void) args; (void) shared; (void) stream;
    stop("the first kernel");
    return cudaSuccess;
}
