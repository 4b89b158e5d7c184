/* fsync and fdatasync of the process that this is loaded into fail with EIO while the file exists that SATCHEL_FAILING_SYNC
   names. cc -shared -fPIC -o failing_sync.so failing_sync.c -ldl */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int fails(void) {
    const char *flag = getenv("SATCHEL_FAILING_SYNC");
    int kept = errno;
    int found = flag != NULL && access(flag, F_OK) == 0;
    errno = kept;
    return found;
}

static int pass_on(const char *name, int descriptor) {
    if (fails()) {
        errno = EIO;
        return -1;
    }
    int (*call)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    return call(descriptor);
}

int fsync(int descriptor) { return pass_on("fsync", descriptor); }
int fdatasync(int descriptor) { return pass_on("fdatasync", descriptor); }
