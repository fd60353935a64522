/* Calls a sampler in a shared library with the auditor's coins, clock and process number.

   driver LIBRARY SYMBOL CALLS DIM SCENARIO...      (see extensions/dpaudit_prove/determinism/driver.py)

   The functions below take precedence over libc's in every library that is loaded (-rdynamic).
   Coins are bytes of a keyed generator, indexed by the call, by how many values of the call are
   written already, and by how many coins were read since: a value's coins stay where they are if
   another value reads more or fewer. Each scenario runs in a child made before anything is loaded.
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define DEVICES 64
#define EVENTS 64
#define UNWRITTEN 0x7FF8647061756469ULL

static uint64_t seed, other_seed, clock_start, ticks, *out;
static long process, replaced_call, replaced_value, replaced_from, replaced_to;
static size_t dim, call, value, offset;
static uint64_t *bytes_read; /* [calls][dim + 1] */
static int device[DEVICES], devices, drawing, report;
static struct {
  char name[96];
  uint64_t count;
} events[EVENTS];

static void event(const char *name) {
  int i = 0;
  if (!drawing)
    return;
  while (i < EVENTS - 1 && events[i].count && strncmp(events[i].name, name, 95))
    i++;
  if (!events[i].count)
    strncpy(events[i].name, name, 95);
  events[i].count++;
}

static uint64_t mixed(uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

static void coins(void *to, size_t n) {
  size_t written = 0;
  if (!drawing) {
    event("coins outside a call");
    memset(to, 0, n);
    return;
  }
  while (written < dim && out[written] != UNWRITTEN)
    written++;
  if (written != value) {
    value = written;
    offset = bytes_read[call * (dim + 1) + value];
  }
  int here = (long)call == replaced_call && (long)value == replaced_value;
  for (size_t i = 0; i < n; i++, offset++) {
    int replaced = here && (long)offset >= replaced_from && (long)offset < replaced_to;
    uint64_t key = mixed(mixed(replaced ? other_seed : seed) + call);
    ((unsigned char *)to)[i] = (unsigned char)mixed(mixed(key + value) + offset);
  }
  bytes_read[call * (dim + 1) + value] += n;
}

/* randomness */
ssize_t getrandom(void *to, size_t n, unsigned flags) {
  (void)flags;
  event("getrandom");
  coins(to, n);
  return (ssize_t)n;
}
int getentropy(void *to, size_t n) {
  event("getentropy");
  coins(to, n);
  return 0;
}
uint32_t arc4random(void) {
  uint32_t x;
  event("arc4random");
  coins(&x, sizeof x);
  return x;
}
void arc4random_buf(void *to, size_t n) {
  event("arc4random");
  coins(to, n);
}
uint32_t arc4random_uniform(uint32_t n) {
  uint32_t x, least = n ? -n % n : 0;
  event("arc4random");
  do
    coins(&x, sizeof x);
  while (x < least);
  return n ? x % n : 0;
}

/* files */
static int is_random(const char *path) {
  return !strcmp(path, "/dev/urandom") || !strcmp(path, "/dev/random");
}
static int is_device(int fd) {
  for (int i = 0; i < devices; i++)
    if (device[i] == fd)
      return 1;
  return 0;
}
static int opened(int at, const char *path, int flags, int mode) {
  if (is_random(path) && devices < DEVICES) {
    event(path);
    return device[devices++] =
               (int)syscall(SYS_openat, at, "/dev/null", O_RDONLY | (flags & O_CLOEXEC), 0);
  }
  char name[96];
  snprintf(name, sizeof name, "file %s", path);
  event(name);
  return (int)syscall(SYS_openat, at, path, flags, mode);
}
#define MODE(flags, last)                                                                          \
  int mode = 0;                                                                                    \
  if ((flags) & (O_CREAT | O_TMPFILE)) {                                                           \
    va_list a;                                                                                     \
    va_start(a, last);                                                                             \
    mode = va_arg(a, int);                                                                         \
    va_end(a);                                                                                     \
  }
int open(const char *path, int flags, ...) {
  MODE(flags, flags) return opened(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
  MODE(flags, flags) return opened(AT_FDCWD, path, flags, mode);
}
int openat(int at, const char *path, int flags, ...) {
  MODE(flags, flags) return opened(at, path, flags, mode);
}
int openat64(int at, const char *path, int flags, ...) {
  MODE(flags, flags) return opened(at, path, flags, mode);
}
int __open_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
ssize_t read(int fd, void *to, size_t n) {
  if (is_device(fd)) {
    coins(to, n);
    return (ssize_t)n;
  }
  if (drawing) {
    char name[96];
    snprintf(name, sizeof name, "read of descriptor %d", fd);
    event(name);
  }
  return syscall(SYS_read, fd, to, n);
}
ssize_t __read_chk(int fd, void *to, size_t n, size_t size) {
  if (n > size)
    abort();
  return read(fd, to, n);
}
int close(int fd) {
  for (int i = 0; i < devices; i++)
    if (device[i] == fd)
      device[i] = device[--devices];
  return (int)syscall(SYS_close, fd);
}
static ssize_t cookie(void *c, char *to, size_t n) {
  (void)c;
  coins(to, n);
  return (ssize_t)n;
}
static FILE *stream(const char *path, const char *mode, const char *real) {
  if (is_random(path)) {
    event(path);
    FILE *f = fopencookie(NULL, "r", (cookie_io_functions_t){.read = cookie});
    if (f)
      setvbuf(f, NULL, _IONBF, 0);
    return f;
  }
  char name[96];
  snprintf(name, sizeof name, "file %s", path);
  event(name);
  FILE *(*next)(const char *, const char *) =
      (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, real);
  return next(path, mode);
}
FILE *fopen(const char *path, const char *mode) { return stream(path, mode, "fopen"); }
FILE *fopen64(const char *path, const char *mode) { return stream(path, mode, "fopen64"); }

/* time and identity */
static uint64_t now(void) { return clock_start + 1000 * ticks++; } /* nanoseconds */
int clock_gettime(clockid_t id, struct timespec *t) {
  (void)id;
  event("clock_gettime");
  uint64_t x = now();
  t->tv_sec = (time_t)(x / 1000000000);
  t->tv_nsec = (long)(x % 1000000000);
  return 0;
}
int timespec_get(struct timespec *t, int base) {
  event("timespec_get");
  uint64_t x = now();
  t->tv_sec = (time_t)(x / 1000000000);
  t->tv_nsec = (long)(x % 1000000000);
  return base;
}
int gettimeofday(struct timeval *restrict t, void *restrict z) {
  (void)z;
  event("gettimeofday");
  uint64_t x = now();
  t->tv_sec = (time_t)(x / 1000000000);
  t->tv_usec = (suseconds_t)(x % 1000000000 / 1000);
  return 0;
}
time_t time(time_t *t) {
  event("time");
  time_t x = (time_t)(now() / 1000000000);
  if (t)
    *t = x;
  return x;
}
clock_t clock(void) {
  event("clock");
  return (clock_t)(now() / 1000);
}
pid_t getpid(void) {
  event("getpid");
  return (pid_t)process;
}
pid_t getppid(void) {
  event("getppid");
  return (pid_t)process + 1;
}
pid_t gettid(void) {
  event("gettid");
  return (pid_t)process;
}

long syscall(long number, ...) {
  long a[6], result;
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 6; i++)
    a[i] = va_arg(list, long);
  va_end(list);
  if (drawing) {
    if (number == SYS_getrandom)
      return (long)getrandom((void *)a[0], (size_t)a[1], 0);
    if (number == SYS_getpid || number == SYS_gettid)
      return getpid();
    if (number == SYS_clock_gettime)
      return clock_gettime((clockid_t)a[0], (struct timespec *)a[1]);
    if (number == SYS_read && is_device((int)a[0])) {
      coins((void *)a[1], (size_t)a[2]);
      return a[2];
    }
    if (number != SYS_read && number != SYS_openat && number != SYS_close) {
      char name[96];
      snprintf(name, sizeof name, "system call %ld", number);
      event(name);
    }
  }
#if defined(__x86_64__)
  register long r10 __asm__("r10") = a[3], r8 __asm__("r8") = a[4], r9 __asm__("r9") = a[5];
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
#elif defined(__aarch64__)
  register long x8 __asm__("x8") = number, x0 __asm__("x0") = a[0], x1 __asm__("x1") = a[1],
                   x2 __asm__("x2") = a[2], x3 __asm__("x3") = a[3], x4 __asm__("x4") = a[4],
                   x5 __asm__("x5") = a[5];
  __asm__ volatile("svc 0"
                   : "+r"(x0)
                   : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                   : "memory");
  result = x0;
#else
#error "write this processor's system call"
#endif
  if (result < 0 && result > -4096) {
    errno = (int)-result;
    return -1;
  }
  return result;
}

/* instructions: RDTSC faults by prctl; RDRAND and RDSEED, 0F C7 /6 and /7, become 0F 0B (UD2) */
#if defined(__x86_64__)
static const int registers[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                  REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                  REG_R12, REG_R13, REG_R14, REG_R15};
static void trapped(int signal_number, siginfo_t *info, void *context) {
  greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
  unsigned char *at = (unsigned char *)g[REG_RIP], *start = at;
  int narrow = 0, rex = 0;
  (void)info;
  if (signal_number == SIGSEGV && at[0] == 0x0F &&
      (at[1] == 0x31 || (at[1] == 0x01 && at[2] == 0xF9))) {
    uint64_t x = now();
    event("rdtsc");
    g[REG_RAX] = (greg_t)(x & 0xFFFFFFFF), g[REG_RDX] = (greg_t)(x >> 32);
    if (at[1] == 0x01)
      g[REG_RCX] = 0;
    g[REG_RIP] += at[1] == 0x31 ? 2 : 3;
    return;
  }
  while (*at == 0x66)
    narrow = 1, at++;
  if ((*at & 0xF0) == 0x40)
    rex = *at++;
  if (signal_number == SIGILL && at[0] == 0x0F && at[1] == 0x0B && at[2] >= 0xF0) {
    uint64_t x = 0;
    greg_t *to = &g[registers[(at[2] & 7) | (rex & 1) << 3]];
    event(at[2] < 0xF8 ? "rdrand" : "rdseed");
    if (rex & 8)
      coins(&x, 8), *to = (greg_t)x;
    else if (narrow)
      coins(&x, 2), *to = (*to & ~(greg_t)0xFFFF) | (greg_t)x;
    else
      coins(&x, 4), *to = (greg_t)x;
    g[REG_EFL] = (g[REG_EFL] & ~(greg_t)0x8D5) | 1; /* CF set; OF, SF, ZF, AF, PF clear */
    g[REG_RIP] += at + 3 - start;
    return;
  }
  signal(signal_number, SIG_DFL);
}
static void trap(const char *loaded_at, char *addresses) {
  struct sigaction act = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_NODEFER};
  sigaction(SIGILL, &act, NULL);
  sigaction(SIGSEGV, &act, NULL);
  for (char *next = strtok(addresses, ","); next; next = strtok(NULL, ",")) {
    unsigned char *p = (unsigned char *)loaded_at + strtoull(next, NULL, 16);
    uintptr_t page = (uintptr_t)p & ~(uintptr_t)4095;
    if (mprotect((void *)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC))
      mprotect((void *)page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    while (!(p[0] == 0x0F && p[1] == 0xC7))
      p++; /* past prefixes */
    p[1] = 0x0B;
  }
  if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0))
    event("the time-stamp counter was not trapped");
}
#else
static void trap(const char *loaded_at, char *addresses) { (void)loaded_at, (void)addresses; }
#endif

static void perturbed(int fill) { /* what an uninitialised local would show */
  volatile unsigned char stack[1 << 16];
  for (size_t i = 0; i < sizeof stack; i++)
    stack[i] = (unsigned char)fill;
}

static void fail(const char *what) {
  dprintf(report, "fail %s\n", what);
  _exit(3);
}

/* SEED,OTHER,CLOCK,PROCESS,FILL,FIRST,CALL,VALUE,FROM,TO: the last four say what is replaced */
static void run(char **argv, const char *scenario) {
  uint64_t n[10] = {0};
  const char *p = scenario;
  for (int i = 0; i < 10 && *p; i++) {
    char *end;
    n[i] = (uint64_t)strtoll(p, &end, 0);
    p = *end ? end + 1 : end;
  }
  size_t calls = strtoull(argv[3], NULL, 10), first = n[5];
  seed = n[0], other_seed = n[1], clock_start = n[2], process = (long)n[3];
  replaced_call = (long)n[6], replaced_value = (long)n[7];
  replaced_from = (long)n[8], replaced_to = (long)n[9];
  out = malloc((dim + 64) * sizeof *out);
  bytes_read = calloc(calls * (dim + 1), sizeof *bytes_read);
  double *kept = malloc(calls * dim * sizeof *kept);
  mallopt(M_PERTURB, (int)n[4]);
  if (n[4] & 1)
    setenv("DPAUDIT_OTHER", "another environment", 1);
  void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library)
    fail(dlerror());
  void (*sampler)(double *, size_t, size_t) =
      (void (*)(double *, size_t, size_t))dlsym(library, argv[2]);
  if (!sampler)
    fail("no such symbol");
  Dl_info where;
  if (!dladdr((void *)sampler, &where))
    fail("where is the library?");
  char *addresses = strdup(strcmp(argv[5], "-") ? argv[5] : "");
  drawing = 1;
  trap(where.dli_fbase, addresses);
  for (call = first; call < calls; call++) {
    for (size_t j = 0; j < dim + 64; j++)
      out[j] = UNWRITTEN;
    value = offset = 0;
    perturbed((int)n[4]);
    sampler((double *)out, 1, dim);
    for (size_t j = 0; j < dim; j++)
      if (out[j] == UNWRITTEN)
        fail("a value was not written");
    for (size_t j = dim; j < dim + 64; j++)
      if (out[j] != UNWRITTEN)
        fail("it wrote past the end");
    memcpy(kept + call * dim, out, dim * sizeof *kept);
  }
  drawing = 0;
  for (size_t c = first; c < calls; c++) {
    for (size_t j = 0; j < dim; j++) {
      uint64_t bits;
      memcpy(&bits, kept + c * dim + j, 8);
      dprintf(report, "value %zu %zu %016" PRIx64 "\n", c, j, bits);
    }
    for (size_t j = 0; j <= dim; j++)
      if (bytes_read[c * (dim + 1) + j])
        dprintf(report, "coins %zu %zu %" PRIu64 "\n", c, j, bytes_read[c * (dim + 1) + j]);
  }
  for (int i = 0; i < EVENTS; i++)
    if (events[i].count)
      dprintf(report, "event %" PRIu64 " %s\n", events[i].count, events[i].name);
  dprintf(report, "end\n");
  _exit(0);
}

int main(int argc, char **argv) {
  if (argc < 7)
    return 2;
  report = dup(1); /* what the sampler prints goes to standard error */
  dup2(2, 1);
  dim = strtoull(argv[4], NULL, 10);
  for (int i = 6; i < argc; i++) {
    dprintf(report, "scenario %d\n", i - 6);
    pid_t child = fork();
    if (child < 0)
      return 4;
    if (child == 0)
      run(argv, argv[i]);
    int status;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
      dprintf(report, "fail signal %d\n", WTERMSIG(status));
  }
  return 0;
}
