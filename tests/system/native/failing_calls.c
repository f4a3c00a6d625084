/* Makes the C library's file calls fail below one directory, for a process that loads this first (LD_PRELOAD).

   The file named by FAILING_CALLS holds "ERRNO DIRECTORY"; while it is missing or empty, nothing fails. With EROFS only
   calls that change something fail, with any other error all of them. A negative number is no error: calls that change
   or sync something wait for so many milliseconds first, or until the plan is gone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int planned(const char *path) {
    const char *plan = getenv("FAILING_CALLS");
    if (!plan || !path) return 0;
    int fd = syscall(SYS_openat, AT_FDCWD, plan, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    char text[PATH_MAX + 16];
    ssize_t size = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    if (size <= 0) return 0;
    text[size] = 0;
    char *root;
    int code = (int)strtol(text, &root, 10);
    while (*root == ' ') root++;
    root[strcspn(root, "\n")] = 0;
    size_t length = strlen(root);
    if (!length || strncmp(path, root, length) || (path[length] && path[length] != '/')) return 0;
    return code;
}

static int fault(const char *path, int changes) {
    int code = planned(path);
    if (code >= 0) return code == EROFS && changes != 1 ? 0 : code;
    for (int waited_ms = 0; changes && waited_ms < -code && planned(path) < 0; waited_ms += 50) usleep(50000);
    return 0;
}

static int fault_of(int fd, int changes) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    if (size <= 0) return 0;
    path[size] = 0;
    return fault(path, changes);
}

#define FAIL_IF(code) do { int found = (code); if (found) { errno = found; return -1; } } while (0)
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define CHANGES(flags) (((flags) & (O_CREAT | O_TRUNC)) || ((flags) & O_ACCMODE) != O_RDONLY)

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        FAIL_IF(fault(path, CHANGES(flags))); \
        return NEXT(name)(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { FAIL_IF(fault_of(fd, 1)); return NEXT(pwrite64)(fd, data, size, at); }
ssize_t write(int fd, const void *data, size_t size) { FAIL_IF(fault_of(fd, 1)); return syscall(SYS_write, fd, data, size); }
ssize_t pread64(int fd, void *data, size_t size, off64_t at) { FAIL_IF(fault_of(fd, 0)); return NEXT(pread64)(fd, data, size, at); }
ssize_t preadv64v2(int fd, const struct iovec *to, int count, off64_t at, int flags) { FAIL_IF(fault_of(fd, 0)); return NEXT(preadv64v2)(fd, to, count, at, flags); }
int ftruncate64(int fd, off64_t size) { FAIL_IF(fault_of(fd, 1)); return NEXT(ftruncate64)(fd, size); }
int fsync(int fd) { FAIL_IF(fault_of(fd, 2)); return NEXT(fsync)(fd); }
int fdatasync(int fd) { FAIL_IF(fault_of(fd, 2)); return NEXT(fdatasync)(fd); }
int rename(const char *from, const char *to) { FAIL_IF(fault(from, 1)); return NEXT(rename)(from, to); }
int unlink(const char *path) { FAIL_IF(fault(path, 1)); return NEXT(unlink)(path); }
int mkdir(const char *path, mode_t mode) { FAIL_IF(fault(path, 1)); return NEXT(mkdir)(path, mode); }
