/* What holds a pod's namespaces: it waits, and as PID 1 of a pod that shares its process namespace it reaps what is
 * left behind. SIGINT and SIGTERM end it with status 0. Freestanding: no libc, no header, so that a cross compiler alone
 * makes it for either architecture. Source of the numbers: Linux, arch/x86/entry/syscalls/syscall_64.tbl and
 * include/uapi/asm-generic/unistd.h. */

enum { INTERRUPT = 2, TERMINATE = 15, CHILD = 17 };
enum { BLOCK = 0, WITHOUT_WAITING = 1, ANY_CHILD = -1, SET_BYTES = 8 };

#if defined(__x86_64__)
enum { SIGPROCMASK = 14, SIGTIMEDWAIT = 128, WAIT4 = 61, EXIT_GROUP = 231 };

static long call(long number, long first, long second, long third, long fourth)
{
	register long r10 __asm__("r10") = fourth;
	long result;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(first), "S"(second), "d"(third), "r"(r10)
			 : "rcx", "r11", "memory");
	return result;
}
#elif defined(__aarch64__)
enum { SIGPROCMASK = 135, SIGTIMEDWAIT = 137, WAIT4 = 260, EXIT_GROUP = 94 };

static long call(long number, long first, long second, long third, long fourth)
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = first;
	register long x1 __asm__("x1") = second;
	register long x2 __asm__("x2") = third;
	register long x3 __asm__("x3") = fourth;
	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
}
#else
#error "pause is written for x86_64 and arm64"
#endif

void _start(void)
{
	/* Blocked, so that they are waited for: PID 1 of a namespace ignores what it neither handles nor waits for. */
	unsigned long signals = 1ul << (INTERRUPT - 1) | 1ul << (TERMINATE - 1) | 1ul << (CHILD - 1);

	call(SIGPROCMASK, BLOCK, (long)&signals, 0, SET_BYTES);
	for (;;) {
		long number = call(SIGTIMEDWAIT, (long)&signals, 0, 0, SET_BYTES);

		if (number == CHILD) {
			/* One signal may stand for several children. */
			while (call(WAIT4, ANY_CHILD, 0, WITHOUT_WAITING, 0) > 0)
				;
		} else if (number > 0) {
			call(EXIT_GROUP, 0, 0, 0, 0);
		}
	}
}
