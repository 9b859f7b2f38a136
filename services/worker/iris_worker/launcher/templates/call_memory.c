/* Puts the memory of a process back as it was in a snapshot, without a privilege or a fork.
 *
 * The kernel notes which pages are written (userfaultfd, asynchronous write protection) and lists
 * them (PAGEMAP_SCAN), so a restore costs what a call has touched. What this file keeps lies in
 * shared mappings, which are never restored. A restore runs on a stack of its own with all signals
 * blocked. Whatever cannot be put back ends the process, so that no further call runs in it.
 * Out of scope: state that is not memory (template_memory.py); what is shared; read-only private
 * mappings of files, such as code, except with `check`.
 * Source: docs/adr/0162-calls-restore-their-memory.md. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#ifndef __x86_64__
#error "tried on x86_64 only"
#endif
#define PAGEMAP_SCAN _IOWR('f', 16, struct scan) /* headers may be older than Linux 6.7 */
enum { WRITTEN = 1 << 1, PRESENT = 1 << 3, SWAPPED = 1 << 4, CHECK_WPASYNC = 2 };
enum { WP_ASYNC = 1 << 15, USER_MODE_ONLY = 1 }; /* of userfaultfd */
enum { PAGE = 4096, MOST_REGIONS = 1 << 14, MOST_RUNS = 1 << 17, MOST_PAGES = 1 << 22 };
enum { TEXT = 1 << 22, FOUND = 2048, KEPT = 1 << 17, STACK = 1 << 16 };
enum { FEW_PAGES = 32, PROTECT_AGAIN = 1024, RSEQ_BYTES = 32, RSEQ_SIGNATURE = 0x53053053 };
struct scan { uint64_t size, flags, start, end, walk_end, found, room, most, not, all, any, told; };
struct found { uint64_t start, end, categories; };
enum watch { NO, SUMMED, RESTORED, WIPED }; /* what is done with a mapping; SUMMED: by `check` */
struct region { uintptr_t start, end; int readable, writable, anonymous; enum watch watch; };
struct run { uintptr_t start, end, first; enum watch watch; }; /* pages of a snapshot */
struct memory { /* a snapshot, in a shared mapping; own: pages that its template does not have */
    int uffd, pagemap, report, check, taken, regions, runs, at;
    long round, pages, own, copied, wiped, unmapped, kept_bytes;
    uintptr_t brk;
    ucontext_t here, away;
    char kept[KEPT], text[TEXT], now[TEXT], stack[STACK] __attribute__((aligned(16)));
    struct found found[FOUND];
    struct region region[MOST_REGIONS];
    struct run run[MOST_RUNS];
    const char *page[MOST_PAGES]; /* the copy of each page */
    uint64_t sum[MOST_PAGES];     /* with `check` */
};
extern const long __rseq_offset __attribute__((weak));
static struct memory *of_template, *mine;
static const char *why = "";

static int fail(const char *reason) { return why = reason, -1; }
static void give_up(const char *reason) { /* during a restore; `report`: a socket to the launcher */
    if (mine->report >= 0) dprintf(mine->report, "l%s", reason);
    _exit(1);
}
static void *shared(size_t size) {
    int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
    void *made = mmap(0, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    return made == MAP_FAILED ? 0 : made;
}
static uint64_t sum_of(const char *page) {
    uint64_t sum = 14695981039346656037u;
    for (int i = 0; i < PAGE; i += 8) sum = (sum ^ *(const uint64_t *)(page + i)) * 1099511628211u;
    return sum;
}
static int read_text(const char *path, char *into) {
    long length = 0, got = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && length < TEXT - 1 && (got = read(fd, into + length, TEXT - 1 - length)) > 0)
        length += got;
    if (fd >= 0) close(fd);
    into[length] = 0;
    return got;
}
/* Runs of pages that are there, from `from` on, which is set to where the next scan begins. */
static long scan(struct memory *m, uintptr_t *from, uintptr_t end, int flags, int told) {
    struct scan s = {sizeof s, flags, *from, end, 0, (uintptr_t)m->found, FOUND, 0, 0, 0, 0, told};
    s.any = PRESENT | SWAPPED;
    long n = ioctl(m->pagemap, PAGEMAP_SCAN, &s);
    *from = s.walk_end;
    return n;
}

/* ── the snapshot ───────────────────────────────────────────────────────────────────────────── */

static int list_regions(struct memory *m) {
    if (read_text("/proc/self/smaps", m->now)) return fail("/proc/self/smaps cannot be read");
    for (char *line = m->now, *next; (next = strchr(line, '\n')); line = next + 1) {
        unsigned long start, end, inode;
        char mode[5];
        int name = 0;
        *next = 0;
        struct region *r = &m->region[m->regions - 1];
        if (sscanf(line, "%lx-%lx %4s %*x %*s %lu %n", &start, &end, mode, &inode, &name) == 4) {
            if (m->regions == MOST_REGIONS) return fail("it has too many mappings");
            *++r = (struct region){start, end, mode[0] == 'r', mode[1] == 'w', inode == 0, NO};
            m->regions++;
            int is_kernels = strncmp(line + name, "[v", 2) == 0; /* vdso, vvar, vsyscall */
            if (mode[3] == 'p' && !is_kernels && (r->writable || r->anonymous)) r->watch = RESTORED;
            else if (mode[3] == 'p' && !is_kernels && r->readable && m->check) r->watch = SUMMED;
        } else if (strncmp(line, "VmFlags:", 8) == 0 && m->regions && r->watch) {
            if (strstr(line, " ht")) return fail("it has huge pages of hugetlbfs");
            if (strstr(line, " wf")) r->watch = WIPED; /* as by a fork */
        }
    }
    return 0;
}

static int protect(struct run *run) {
    struct uffdio_writeprotect w = {{run->start, run->end - run->start}, 1};
    return ioctl(mine->uffd, UFFDIO_WRITEPROTECT, &w);
}

/* Which pages there are; those of a process that makes calls are watched from now on. */
static int list_pages(struct memory *m) {
    for (struct region *r = m->region; r < m->region + m->regions; r++) {
        int is_kept = r->watch == RESTORED || r->watch == SUMMED;
        int watches = m == mine && r->watch == RESTORED;
        struct uffdio_register g = {{r->start, r->end - r->start}, UFFDIO_REGISTER_MODE_WP, 0};
        if (watches && ioctl(m->uffd, UFFDIO_REGISTER, &g))
            return fail("the kernel does not watch a mapping of it");
        for (uintptr_t from = r->start; is_kept && from < r->end;) {
            long n = scan(m, &from, r->end, 0, PRESENT);
            if (n < 0) return fail("the kernel does not list its pages");
            if (n > 0 && !r->readable) return fail("it has memory that it may not read");
            for (struct found *f = m->found; f < m->found + n; f++) {
                struct run *run = &m->run[m->runs++];
                *run = (struct run){f->start, f->end, m->pages, r->watch};
                m->pages += (f->end - f->start) / PAGE;
                if (m->runs == MOST_RUNS || m->pages > MOST_PAGES) return fail("it is too large");
                if (watches && protect(run)) return fail("the kernel does not protect its pages");
            }
        }
    }
    return 0;
}

/* The template's copy of a page; `at` is where the last one was found, as pages come by address. */
static const char *page_of_template(uintptr_t address, int *at) {
    struct memory *t = of_template;
    while (t && *at < t->runs && t->run[*at].end <= address) ++*at;
    struct run *run = t && *at < t->runs ? &t->run[*at] : 0;
    return run && run->start <= address ? t->page[run->first + (address - run->start) / PAGE] : 0;
}

static int copy_pages(struct memory *m) {
    char *copies = shared((m->pages + 1) * PAGE);
    int at = 0;
    if (!copies) return fail("there is no room for a copy of its memory");
    for (struct run *run = m->run; run < m->run + m->runs; run++)
        for (uintptr_t p = run->start, n = run->first; p < run->end; p += PAGE, n++) {
            m->page[n] = page_of_template(p, &at);
            if (run->watch == RESTORED && !(m->page[n] && memcmp(m->page[n], (char *)p, PAGE) == 0))
                m->page[n] = memcpy(copies + m->own++ * PAGE, (char *)p, PAGE);
            if (m->check) m->sum[n] = sum_of(run->watch == RESTORED ? m->page[n] : (char *)p);
        }
    return mprotect(copies, (m->pages + 1) * PAGE, PROT_READ) ? fail("its copy stays writable") : 0;
}

static struct memory *begin(int check) {
    struct memory *m = shared(sizeof *m);
    if (m) m->check = check, m->report = -1, m->pagemap = open("/proc/self/pagemap", O_CLOEXEC);
    return m && m->pagemap >= 0 ? m : (fail("its memory cannot be copied"), NULL);
}

/* Copy the memory of a template, for the processes that are cloned from it; returns 0, or -1. */
int memory_of_template(int check) {
    struct memory *m = begin(check);
    int failed = !m || list_regions(m) || list_pages(m) || copy_pages(m);
    if (m) close(m->pagemap);
    of_template = failed ? 0 : m;
    return -failed;
}

/* Prepare for a snapshot; returns 0, or -1 (`memory_why`). `report`: as for `give_up`. */
int memory_open(int report, int check) {
    struct uffdio_api api = {UFFD_API, WP_ASYNC, 0};
    if (!(mine = begin(check))) return -1;
    mine->report = report;
    mine->uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | USER_MODE_ONLY);
    if (mine->uffd < 0) return fail("the kernel refuses userfaultfd");
    return ioctl(mine->uffd, UFFDIO_API, &api) ? fail("the kernel is older than Linux 6.7") : 0;
}

/* Take the snapshot; returns 0, or -1, and again after each restore: how many there were. */
long memory_snapshot(void) {
    if (list_regions(mine) || list_pages(mine)) return -1;
    getcontext(&mine->here); /* a restore goes on here */
    if (!mine->taken) {
        mine->taken = 1;
        mine->brk = syscall(SYS_brk, 0);
        if (copy_pages(mine)) return -1;
        if (read_text("/proc/self/maps", mine->text)) return fail("/proc/self/maps cannot be read");
    }
    return mine->round;
}
const char *memory_why(void) { return why; }
long memory_kept(const char **into) { return *into = mine->kept, mine->kept_bytes; }
void memory_figures(long *into) { memcpy(into, &mine->round, 6 * sizeof *into); }

/* ── the restore ────────────────────────────────────────────────────────────────────────────── */

static void undo_mappings(void) {
    char *old = mine->text;
    uintptr_t first = 0, last = 0; /* the mapping of the snapshot that is compared */
    if (read_text("/proc/self/maps", mine->now)) give_up("/proc/self/maps cannot be read");
    if (strcmp(mine->text, mine->now) == 0) return;
    syscall(SYS_brk, mine->brk);
    for (char *line = mine->now; *line; line = strchr(line, '\n') + 1) {
        uintptr_t from = strtoul(line, &line, 16), end = strtoul(line + 1, &line, 16), next;
        for (; from < end; from = next) {
            for (; last <= from && *old; old = strchr(old, '\n') + 1)
                first = strtoul(old, &old, 16), last = strtoul(old + 1, &old, 16);
            next = last <= from ? end : first <= from ? last : first;
            if (next > end) next = end;
            if (first <= from && from < last) continue;
            if (munmap((void *)from, next - from)) give_up("a new mapping stays");
            mine->unmapped++;
        }
    }
    if (read_text("/proc/self/maps", mine->now)) give_up("/proc/self/maps cannot be read");
    if (strcmp(mine->text, mine->now)) give_up("it changed mappings of the snapshot");
}

/* Some pages of a region, which are there or not, written or not, as the kernel says. */
static void put_back(struct region *r, uintptr_t from, uintptr_t end, int present, int written) {
    for (uintptr_t next; from < end; from = next) {
        while (mine->at < mine->runs && mine->run[mine->at].end <= from) mine->at++;
        struct run *run = mine->at < mine->runs ? &mine->run[mine->at] : 0;
        int is_old = run && run->start <= from;
        next = is_old ? run->end : run ? run->start : end;
        if (next > end) next = end;
        if (!is_old && present) {
            mine->wiped += (next - from) / PAGE;
            if (r->anonymous && r->writable && next - from <= FEW_PAGES * PAGE)
                memset((void *)from, 0, next - from);
            else if (madvise((void *)from, next - from, MADV_DONTNEED))
                give_up("new pages cannot be removed");
        } else if (is_old && (written || !present)) {
            if (!r->writable) give_up("it wrote memory that is read-only");
            for (uintptr_t p = from; p < next; p += PAGE, mine->copied++)
                memcpy((void *)p, mine->page[run->first + (p - run->start) / PAGE], PAGE);
        }
    }
}

static void restore(void) {
    /* the kernel writes the processor's number into this area, after the copy of its page too */
    char *area = &__rseq_offset ? (char *)__builtin_thread_pointer() + __rseq_offset : 0;
    int paused = area && syscall(SYS_rseq, area, RSEQ_BYTES, 1, RSEQ_SIGNATURE) == 0;
    mine->copied = mine->wiped = mine->unmapped = mine->at = 0;
    undo_mappings();
    for (struct region *r = mine->region; r < mine->region + mine->regions; r++) {
        uintptr_t done = r->start, from = r->start;
        if (r->watch == WIPED && madvise((void *)r->start, r->end - r->start, MADV_DONTNEED))
            give_up("pages cannot be wiped");
        while (r->watch == RESTORED && from < r->end) {
            long n = scan(mine, &from, r->end, CHECK_WPASYNC, PRESENT | WRITTEN);
            if (n < 0) give_up("it replaced a mapping of the snapshot");
            for (struct found *f = mine->found; f < mine->found + n; done = f++->end) {
                put_back(r, done, f->start, 0, 0);
                put_back(r, f->start, f->end, 1, (f->categories & WRITTEN) != 0);
            }
        }
        if (r->watch == RESTORED) put_back(r, done, r->end, 0, 0);
    }
    int protects = mine->copied > PROTECT_AGAIN;
    for (struct run *run = mine->run; run < mine->run + mine->runs; run++) {
        if (protects && run->watch == RESTORED && protect(run)) give_up("a page stays writable");
        for (uintptr_t p = run->start, n = run->first; mine->check && p < run->end; p += PAGE, n++)
            if (sum_of((char *)p) != mine->sum[n]) give_up("a page differs from the snapshot");
    }
    if (paused) syscall(SYS_rseq, area, RSEQ_BYTES, 0, RSEQ_SIGNATURE);
    mine->round++;
    setcontext(&mine->here);
}

/* Keep some bytes, and go back to where the snapshot was taken. Does not return. */
void memory_restore(const char *kept, long bytes) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, 0);
    if (bytes > KEPT) give_up("it has too much to keep");
    memcpy(mine->kept, kept, mine->kept_bytes = bytes);
    getcontext(&mine->away);
    mine->away.uc_stack = (stack_t){.ss_sp = mine->stack, .ss_size = STACK};
    mine->away.uc_link = 0;
    makecontext(&mine->away, restore, 0);
    setcontext(&mine->away);
}
