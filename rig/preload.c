// What must not touch memory while an engine loads a model whose data are holes: large reads are skipped, large fills
// of fresh memory are left out, and nothing is paged in ahead. Preloaded (LD_PRELOAD) into the engine's program.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LARGE ((size_t) 1 << 20)
#define NEXT(type, name, ...) ((type (*)(__VA_ARGS__)) dlsym(RTLD_NEXT, name))

size_t fread(void * data, size_t size, size_t count, FILE * file) {
    if (size * count >= LARGE) return fseeko(file, (off_t) (size * count), SEEK_CUR) ? 0 : count;
    return NEXT(size_t, "fread", void *, size_t, size_t, FILE *)(data, size, count, file);
}
ssize_t read(int file, void * data, size_t count) {
    if (count >= LARGE && lseek(file, (off_t) count, SEEK_CUR) >= 0) return (ssize_t) count;
    return NEXT(ssize_t, "read", int, void *, size_t)(file, data, count);
}
void * memset(void * data, int value, size_t count) {
    if (count >= 64 * LARGE && value == 0) return data;
    for (volatile unsigned char * p = data; count--; p++) *p = (unsigned char) value;
    return data;
}
static void * map(void * start, size_t size, int protection, int flags, int file, off_t offset) {
    return NEXT(void *, "mmap", void *, size_t, int, int, int, off_t)(start, size, protection, flags, file, offset);
}
// What is read of a hole is a page of zeros that all share, instead of one of the page cache for each; a buffer may be
// larger than the machine's RAM.
void * mmap(void * start, size_t size, int protection, int flags, int file, off_t offset) {
    flags = (flags & ~MAP_POPULATE) | (flags & MAP_ANONYMOUS ? MAP_NORESERVE : 0);
    char * found = map(start, size, protection, flags, file, offset);
    if (found == MAP_FAILED || flags & MAP_ANONYMOUS || size < 64 * LARGE || offset) return found;
    off_t here = lseek(file, 0, SEEK_CUR), hole = lseek(file, 0, SEEK_HOLE);
    int only_holes = hole >= 0 && lseek(file, hole, SEEK_DATA) < 0;
    lseek(file, here, SEEK_SET);
    size_t kept = ((size_t) hole + 4095) & ~(size_t) 4095;
    if (!only_holes || kept >= size) return found;
    map(found + kept, size - kept, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    NEXT(int, "madvise", void *, size_t, int)(found + kept, size - kept, MADV_HUGEPAGE);
    return found;
}
int posix_madvise(void * start, size_t size, int advice) { (void) start; (void) size; (void) advice; return 0; }
int madvise(void * start, size_t size, int advice) { (void) start; (void) size; (void) advice; return 0; }

// Buffers in RAM that are larger than the machine has: addresses too, whose pages come when they are touched.
extern void __libc_free(void *);
extern void * __libc_memalign(size_t, size_t);
#define KEPT 256
static struct { void * start; size_t size; } kept[KEPT];
static int n_kept;

int posix_memalign(void ** start, size_t alignment, size_t size) {
    if (size < 64 * LARGE || n_kept == KEPT) return (*start = __libc_memalign(alignment, size)) ? 0 : 12;
    *start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (*start == MAP_FAILED) return 12;
    kept[n_kept].start = *start;
    kept[n_kept++].size = size;
    return 0;
}
void free(void * start) {
    for (int i = 0; start && i < n_kept; i++) {
        if (kept[i].start != start) continue;
        munmap(start, kept[i].size);
        kept[i] = kept[--n_kept];
        return;
    }
    __libc_free(start);
}
