// Devices of llama.cpp that exist only by name and free memory, for tests of what `llama-fit-params` chooses.
// Loaded by GGML_BACKEND_PATH; STAND_IN_FREE: bytes free on each, separated by commas. They run every operation and take
// batches of 32 tokens from RAM, as CUDA does (ggml-cuda.cu, ggml_backend_cuda_device_offload_op), and have a type for
// host memory, as CUDA's pinned one: without it weights in RAM are repacked for the CPU, and are not offered. Nothing is
// allocated on them, for llama-fit-params only measures.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-backend-impl.h"

#define MOST 16
#define ALIGNMENT 128

struct card {
    char   name[16];
    size_t free;
};

static struct card                     cards[MOST];
static struct ggml_backend_device      devices[MOST];
static struct ggml_backend_buffer_type types[MOST];
static struct ggml_backend_buffer_type host;
static struct ggml_backend_reg         registry;
static size_t                          n_cards;
static uint8_t                         guid[16] = { 0x73, 0x74, 0x61, 0x6e, 0x64, 0x2d, 0x69, 0x6e };

static const char * type_name(ggml_backend_buffer_type_t type) { return ((struct card *) type->context)->name; }
static size_t type_alignment(ggml_backend_buffer_type_t type) { (void) type; return ALIGNMENT; }
static ggml_backend_buffer_t type_alloc(ggml_backend_buffer_type_t type, size_t size) { (void) type; (void) size; return NULL; }

static const char * host_name(ggml_backend_buffer_type_t type) { (void) type; return "CUDA_Host"; }
static size_t host_alignment(ggml_backend_buffer_type_t type) { (void) type; return 32; }
static bool host_is_host(ggml_backend_buffer_type_t type) { (void) type; return true; }
static void host_free(ggml_backend_buffer_t buffer) { free(buffer->context); }
static void * host_base(ggml_backend_buffer_t buffer) { return buffer->context; }
static void host_clear(ggml_backend_buffer_t buffer, uint8_t value) { memset(buffer->context, value, buffer->size); }
static ggml_backend_buffer_t host_alloc(ggml_backend_buffer_type_t type, size_t size) {
    ggml_backend_buffer_t buffer = calloc(1, sizeof(*buffer));
    buffer->iface.free_buffer = host_free;
    buffer->iface.get_base = host_base;
    buffer->iface.clear = host_clear;
    buffer->buft = type;
    buffer->context = aligned_alloc(32, (size + 31) / 32 * 32);
    buffer->size = size;
    return buffer;
}

static const char * backend_name(ggml_backend_t backend) { return ((struct card *) backend->context)->name; }
static void backend_free(ggml_backend_t backend) { free(backend); }
static void backend_synchronize(ggml_backend_t backend) { (void) backend; }
static void event_record(ggml_backend_t backend, ggml_backend_event_t event) { (void) backend; (void) event; }
static void event_wait(ggml_backend_t backend, ggml_backend_event_t event) { (void) backend; (void) event; }
static enum ggml_status backend_compute(ggml_backend_t backend, struct ggml_cgraph * graph) {
    (void) backend; (void) graph;
    return GGML_STATUS_FAILED;
}

static const char * device_name(ggml_backend_dev_t device) { return ((struct card *) device->context)->name; }
static enum ggml_backend_dev_type device_type(ggml_backend_dev_t device) { (void) device; return GGML_BACKEND_DEVICE_TYPE_GPU; }
static void device_memory(ggml_backend_dev_t device, size_t * free_bytes, size_t * total) {
    *free_bytes = *total = ((struct card *) device->context)->free;
}
static void device_props(ggml_backend_dev_t device, struct ggml_backend_dev_props * props) {
    memset(props, 0, sizeof(*props));
    props->name = props->description = device_name(device);
    props->type = GGML_BACKEND_DEVICE_TYPE_GPU;
    device_memory(device, &props->memory_free, &props->memory_total);
    props->caps.async = props->caps.events = true;
}
static ggml_backend_t device_backend(ggml_backend_dev_t device, const char * params) {
    (void) params;
    ggml_backend_t backend = calloc(1, sizeof(*backend));
    backend->guid = &guid;
    backend->device = device;
    backend->context = device->context;
    backend->iface.get_name = backend_name;
    backend->iface.free = backend_free;
    backend->iface.synchronize = backend_synchronize;
    backend->iface.graph_compute = backend_compute;
    backend->iface.event_record = event_record;
    backend->iface.event_wait = event_wait;
    return backend;
}
static ggml_backend_buffer_type_t device_type_of_buffers(ggml_backend_dev_t device) { return &types[device - devices]; }
static ggml_backend_buffer_type_t device_type_of_host(ggml_backend_dev_t device) { (void) device; return &host; }
static bool device_supports(ggml_backend_dev_t device, const struct ggml_tensor * op) { (void) device; (void) op; return true; }
static bool device_reads(ggml_backend_dev_t device, ggml_backend_buffer_type_t type) { return type == &types[device - devices]; }
static bool device_offloads(ggml_backend_dev_t device, const struct ggml_tensor * op) {
    (void) device;
    int64_t batch = op->ne[1] * op->ne[2] * op->ne[3];
    if (op->op == GGML_OP_GET_ROWS) batch = 0;
    if (op->op == GGML_OP_MUL_MAT) batch = op->ne[1];
    if (op->op == GGML_OP_MUL_MAT_ID || op->op == GGML_OP_ROPE || op->op == GGML_OP_ROPE_BACK) batch = op->ne[2];
    return batch >= 32;
}
static ggml_backend_event_t event_new(ggml_backend_dev_t device) {
    ggml_backend_event_t event = calloc(1, sizeof(*event));
    event->device = device;
    return event;
}
static void event_free(ggml_backend_dev_t device, ggml_backend_event_t event) { (void) device; free(event); }
static void event_synchronize(ggml_backend_dev_t device, ggml_backend_event_t event) { (void) device; (void) event; }

static const char * registry_name(ggml_backend_reg_t reg) { (void) reg; return "CUDA"; }
static size_t registry_count(ggml_backend_reg_t reg) { (void) reg; return n_cards; }
static ggml_backend_dev_t registry_device(ggml_backend_reg_t reg, size_t i) { (void) reg; return &devices[i]; }
static void * registry_address(ggml_backend_reg_t reg, const char * name) { (void) reg; (void) name; return NULL; }

__attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void) {
    const char * text = getenv("STAND_IN_FREE");
    for (n_cards = 0; text && *text && n_cards < MOST; n_cards++) {
        struct card * card = &cards[n_cards];
        snprintf(card->name, sizeof(card->name), "CUDA%zu", n_cards);
        card->free = strtoull(text, (char **) &text, 10);
        text += *text == ',';
        struct ggml_backend_device_i of_device = {
            device_name, device_name, device_memory, device_type, device_props, device_backend, device_type_of_buffers,
            device_type_of_host, NULL,
            device_supports, device_reads, device_offloads, event_new, event_free, event_synchronize,
        };
        devices[n_cards] = (struct ggml_backend_device) { of_device, &registry, card };
        struct ggml_backend_buffer_type_i of_type = { type_name, type_alloc, type_alignment, NULL, NULL, NULL };
        types[n_cards] = (struct ggml_backend_buffer_type) { of_type, &devices[n_cards], card };
    }
    struct ggml_backend_buffer_type_i of_host = { host_name, host_alloc, host_alignment, NULL, NULL, host_is_host };
    host = (struct ggml_backend_buffer_type) { of_host, &devices[0], NULL };
    struct ggml_backend_reg_i of_registry = { registry_name, registry_count, registry_device, registry_address };
    registry = (struct ggml_backend_reg) { GGML_BACKEND_API_VERSION, of_registry, NULL };
    return &registry;
}
