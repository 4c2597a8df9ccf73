/* Preloaded into a process under test: names that no name server need know.
   *.dead.test    is answered when the file $DEAD_UNTIL exists, as by a name server that does not answer
   *.alive.test   is 127.0.0.1 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int ends_with(const char *name, const char *end) {
    size_t n = strlen(name), e = strlen(end);
    return n >= e && strcmp(name + n - e, end) == 0;
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
        dlsym(RTLD_NEXT, "getaddrinfo");
    if (name && ends_with(name, ".dead.test")) {
        while (access(getenv("DEAD_UNTIL"), F_OK) != 0) usleep(10000);
        return EAI_AGAIN;
    }
    if (name && ends_with(name, ".alive.test")) name = "127.0.0.1";
    return real(name, service, hints, found);
}
