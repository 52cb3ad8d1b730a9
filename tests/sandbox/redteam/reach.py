"""Answers that try to reach other processes, files, the network or the kernel."""

from __future__ import annotations

from tests.sandbox.redteam.answers import Hostile, deed, hostile

_NUMBERS = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "bpf": (321, 280),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "keyctl": (250, 219), "add_key": (248, 217),
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "pivot_root": (155, 41), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138), "memfd_create": (319, 279),
    "execveat": (322, 281), "shmget": (29, 194), "mq_open": (240, 180), "perf_event_open": (298, 241),
    "open_by_handle_at": (304, 265), "kcmp": (312, 272), "clone3": (435, 435), "prctl": (157, 167),
    "inotify_init1": (294, 26), "timer_create": (222, 107), "fanotify_init": (300, 262), "init_module": (175, 105),
    "kexec_load": (246, 104), "reboot": (169, 142), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "personality": (135, 92), "ioprio_set": (251, 30), "sched_setaffinity": (203, 122), "syslog": (103, 116),
    "landlock_restrict_self": (446, 446), "process_madvise": (440, 440), "move_pages": (279, 239),
}  # fmt: skip
"""Numbers of system calls on x86-64 and on aarch64."""


def call(name: str, *arguments: str, needs_filter: bool = False) -> Hostile:
    """Return an answer that makes one system call and reports "done" if the kernel does not refuse it."""
    x86, arm = _NUMBERS[name]
    source = f"""
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall.restype = ctypes.c_long
        room = ctypes.create_string_buffer(4096)
        def f():
            number = {{"x86_64": {x86}, "aarch64": {arm}}}[os.uname().machine]
            arguments = [ctypes.c_long(x) if isinstance(x, int) else x for x in ({", ".join(["number", *arguments])},)]
            return "done" if libc.syscall(*arguments) >= 0 else ctypes.get_errno()
        """
    return hostile(f"system call {name}", source, "failed", needs_filter=needs_filter)


_ME, _PARENT = "os.getpid()", "@PARENT@"
_VECTOR = "ctypes.byref((ctypes.c_void_p * 2)(ctypes.addressof(room), 64))"

CALLS = [
    call("ptrace", "16", "os.getppid()", "0", "0"),
    call("process_vm_readv", "os.getppid()", _VECTOR, "1", _VECTOR, "1", "0"),
    call("process_vm_writev", "os.getppid()", _VECTOR, "1", _VECTOR, "1", "0"),
    call("bpf", "5", "room", "120"),
    call("userfaultfd", "1", needs_filter=True),
    call("io_uring_setup", "1", "room", needs_filter=True),
    call("keyctl", "0", "-3", "1", needs_filter=True),
    call("add_key", "b'user'", "b'@MARK@'", "b'x'", "1", "-3", needs_filter=True),
    call("unshare", "0x10000000", needs_filter=True),
    call("setns", "0", "0"),
    call("mount", "b'none'", "b'/'", "b'tmpfs'", "0", "0"),
    call("pivot_root", "b'/'", "b'/'"),
    call("pidfd_open", _PARENT, "0", needs_filter=True),
    call("pidfd_getfd", "0", "0", "0"),
    call("tgkill", "os.getppid()", "os.getppid()", "9", needs_filter=True),
    call("rt_sigqueueinfo", "os.getppid()", "9", "room"),
    call("memfd_create", "b'x'", "0", needs_filter=True),
    call("execveat", "-100", "b'/bin/sh'", "0", "0", "0", needs_filter=True),
    call("shmget", "0x5eed", "4096", "0o1666", needs_filter=True),
    call("mq_open", "b'@MARK@'", "0o102", "0o600", "0", needs_filter=True),
    call("perf_event_open", "room", "0", "-1", "-1", "0"),
    call("open_by_handle_at", "-100", "room", "0"),
    call("kcmp", "os.getppid()", _ME, "0", "0", "0"),
    call("clone3", "room", "88", needs_filter=True),
    call("prctl", "4", "1", "0", "0", "0", needs_filter=True),
    call("inotify_init1", "0", needs_filter=True),
    call("timer_create", "0", "0", "room", needs_filter=True),
    call("fanotify_init", "0", "0"),
    call("init_module", "room", "64", "b''"),
    call("kexec_load", "0", "0", "0", "0"),
    call("reboot", "0xfee1dead", "672274793", "0", "0"),
    call("settimeofday", "room", "0"),
    call("clock_settime", "0", "room"),
    call("personality", "0x0040000", needs_filter=True),
    call("ioprio_set", "1", "0", "0x6007", needs_filter=True),
    call("sched_setaffinity", "os.getppid()", "8", "b'\\x01' + bytes(7)", needs_filter=True),
    call("syslog", "2", "room", "100"),
    call("landlock_restrict_self", "-1", "0"),
    call("process_madvise", "0", "0", "0", "0", "0"),
    call("move_pages", "os.getppid()", "0", "0", "0", "0", "0", needs_filter=True),
    hostile(
        "system calls by the numbers of another architecture",
        """
        import ctypes, mmap
        def f():
            code = bytes.fromhex("b814000000cd80c3")  # mov eax, 20 (getpid of i386); int 0x80; ret
            page = mmap.mmap(-1, 4096, prot=7)
            page.write(code)
            run = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
            return "done" if run() > 0 else 0
        """,
        "crash|failed|error",
        needs_filter=True,
    ),
    hostile(
        "system calls of x32",
        "import ctypes\ndef f(): return 'done' if ctypes.CDLL(None).syscall((1 << 30) + 57) >= 0 else 0",
        "crash|failed",
    ),
]

PROCESSES = [
    deed("kill(parent)", "os", "os.kill(os.getppid(), 9)", needs_filter=True),
    deed("kill(who keeps the sandbox)", "os", "os.kill(@PARENT@, 9)"),
    deed("kill(1)", "os", "os.kill(1, 9)", needs_filter=True),
    deed("kill(-1)", "os", "os.kill(-1, 9)", needs_filter=True),
    deed("killpg of the parent", "os", "os.killpg(os.getpgid(os.getppid()), 9)", needs_filter=True),
    deed("stop the parent", "os, signal", "os.kill(os.getppid(), signal.SIGSTOP)", needs_filter=True),
    deed("stop itself", "os, signal", "os.kill(os.getpid(), signal.SIGSTOP)", needs_filter=True),
    deed("exec", "os, sys", "os.execv('/bin/sh', ['sh', '-c', 'sleep 99'])", needs_filter=True),
    deed("exec of memory", "os", "x = os.memfd_create('x')", "os.write(x, open('/bin/sh', 'rb').read())",
         "os.execv(f'/proc/self/fd/{x}', ['sh'])"),
    deed("a shell", "subprocess", "subprocess.run(['/bin/sh', '-c', 'sleep 99 & disown'], check=True)"),
    deed("priority of the parent", "os", "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)", needs_filter=True),
    deed("limits raised", "resource", "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))"),
    deed("limits raised, processor time", "resource", "resource.setrlimit(resource.RLIMIT_CPU, (9999, 9999))"),
    deed("limits of the parent", "os, resource", "resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (4, 4))",
         needs_filter=True),
    *(
        hostile(f"processes listed by {name}", f"""
            import os, time, resource, ctypes
            libc = ctypes.CDLL(None, use_errno=True)
            def seen(process):
                try:
                    return {attempt}
                except ProcessLookupError:
                    return "there is none"
                except (OSError, ValueError) as error:
                    return error.errno
            def f():
                answers = [seen(process) for process in (@PARENT@, 1, 2, 4194301, 4194302)]
                return "done" if len(set(map(str, answers))) > 1 else answers
            """, needs_filter=True)
        for name, attempt in (
            ("kill(pid, 0)", "os.kill(process, 0)"),
            ("getpgid", "os.getpgid(process)"),
            ("getsid", "os.getsid(process)"),
            ("sched_getaffinity", "os.sched_getaffinity(process)"),
            ("sched_getscheduler", "os.sched_getscheduler(process)"),
            ("sched_getparam", "os.sched_getparam(process)"),
            ("sched_rr_get_interval", "os.sched_rr_get_interval(process)"),
            ("getpriority", "os.getpriority(os.PRIO_PROCESS, process)"),
            ("getpriority of groups", "os.getpriority(os.PRIO_PGRP, process)"),
            ("prlimit", "resource.prlimit(process, resource.RLIMIT_NOFILE)"),
            ("clock_gettime", "time.clock_gettime((~process << 3) | 2) and 0"),
            ("clock_getres", "time.clock_getres((~process << 3) | 2)"),
            ("waitpid", "os.waitpid(process, os.WNOHANG)"),
            ("waitid", "os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG)"),
            ("pidfd_open", "os.pidfd_open(process) and 0"),
            ("setpgid", "os.setpgid(process, process)"),
            ("the robust list", "libc.syscall(274 if os.uname().machine == 'x86_64' else 100, process,"
             " ctypes.create_string_buffer(8), ctypes.create_string_buffer(8)) and ctypes.get_errno()"),
        )
    ),
    deed("processes listed in /proc", "os", "os.listdir('/proc')"),
    deed("the threads of a process", "os", "os.listdir('/proc/@PARENT@/task')"),
    deed("the name of a process", "os", "open('/proc/@PARENT@/comm').read()"),
    deed("become root", "os", "os.setresuid(0, 0, 0)", "assert os.getuid() == 0", "open('/etc/shadow').read()"),
    deed("chroot", "os", "os.chroot('/')"),
    deed("unshare", "os", "os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNS)", needs_filter=True),
    deed("real-time scheduling", "os", "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))"),
]  # fmt: skip

FILES = [
    *(
        deed(f"a file left in {name}", "os", f"open(os.path.join({folder!r}, '@MARK@'), 'w').write('x')")
        for name, folder in (
            ("/tmp", "/tmp"), ("/var/tmp", "/var/tmp"), ("shared memory", "/dev/shm"), ("the root", "/"),
            ("the working directory", "."), ("the home", "@HOME@"), ("a folder of the user", "@FOLDER@"),
            ("/proc", "/proc/self"),
        )
    ),
    deed("a folder left behind", "os", "os.mkdir('/tmp/@MARK@')"),
    deed("a temporary file", "tempfile", "tempfile.NamedTemporaryFile(prefix='@MARK@', delete=False)"),
    deed("a file without a name", "os", "os.open('/tmp', os.O_TMPFILE | os.O_RDWR)"),
    deed("a symbolic link", "os", "os.symlink('@FOLDER@/secret', '/tmp/@MARK@')"),
    deed("a hard link", "os", "os.link('@FOLDER@/secret', '/tmp/@MARK@')"),
    deed("a fifo", "os", "os.mkfifo('/tmp/@MARK@')"),
    deed("a device", "os", "os.mknod('/tmp/@MARK@', 0o20666, os.makedev(1, 1))"),
    deed("a secret read", "os", "open('@FOLDER@/secret').read()"),
    deed("a secret read by a way around", "os", "open('/proc/self/root@FOLDER@/secret').read()"),
    deed("a secret read by a relative way", "os", "open('../../../../../..@FOLDER@/secret').read()"),
    deed("a secret emptied", "os", "os.truncate('@FOLDER@/secret', 0)"),
    deed("a secret removed", "os", "os.remove('@FOLDER@/secret')"),
    deed("a secret renamed", "os", "os.rename('@FOLDER@/secret', '@FOLDER@/@MARK@')"),
    deed("a secret's mode", "os", "os.chmod('@FOLDER@/secret', 0o777)"),
    deed("a secret's times", "os", "os.utime('@FOLDER@/secret', (0, 0))"),
    deed("an attribute of a secret", "os", "os.setxattr('@FOLDER@/secret', 'user.x', b'x')"),
    deed("the folder of a secret listed", "os", "os.listdir('@FOLDER@')"),
    deed("passwords", "os", "open('/etc/shadow').read()"),
    deed("an installed package", "os", "open('@PACKAGE@').read()"),
    deed("an installed package of the system", "os", "open('@SYSTEM@').read()"),
    deed("installed packages on the path", "sys, os", "sys.path += [os.path.dirname(os.path.dirname('@PACKAGE@'))]",
         "import pytest"),
    deed("users", "os", "open('/etc/passwd').read()"),
    deed("the interpreter changed", "os", "open(os.__file__, 'a')"),
    deed("the interpreter removed", "os", "os.remove(os.__file__)"),
    deed("the interpreter's cache", "os", "open(os.path.dirname(os.__file__) + '/__pycache__/@MARK@', 'w')"),
    deed("shared memory", "multiprocessing.shared_memory as m", "m.SharedMemory('@MARK@', True, 4096)"),
    deed("a semaphore", "multiprocessing", "multiprocessing.Semaphore()"),
    deed("a data base", "sqlite3", "sqlite3.connect('/tmp/@MARK@').execute('create table x (y)')"),
    deed("kernel settings", "os", "open('/proc/sys/kernel/hostname', 'w').write('@MARK@')"),
    deed("a terminal", "os", "os.open('/dev/tty', os.O_RDWR)"),
    deed("a pseudo terminal", "os", "os.openpty()"),
    deed("physical memory", "os", "open('/dev/mem', 'rb').read(1)"),
    hostile("a large file", "def f(): open('/tmp/@MARK@', 'wb').write(bytes(1 << 30)); return 'done'"),
]  # fmt: skip

NETWORK = [
    deed("tcp", "socket", "socket.create_connection(('127.0.0.1', @TCP@), 0.3).sendall(b'x')"),
    deed("udp", "socket", "socket.socket(2, 2).sendto(b'x', ('127.0.0.1', @UDP@))", needs_filter=True),
    deed("tcp without waiting", "socket", "s = socket.socket()", "s.setblocking(False)",
         "s.connect(('127.0.0.1', @TCP@))"),
    deed("tcp fast open", "socket", "socket.socket().sendto(b'x', 0x20000000, ('127.0.0.1', @TCP@))"),
    deed("tcp 6", "socket", "socket.create_connection(('::1', @TCP@), 0.3)"),
    deed("an abstract unix socket", "socket", "socket.socket(socket.AF_UNIX).connect('\\0@UNIX@')"),
    deed("a unix socket in a file", "socket", "socket.socket(socket.AF_UNIX).bind('/tmp/@MARK@')"),
    deed("a unix socket to the user's services", "socket", "socket.socket(socket.AF_UNIX).connect('@FOLDER@/socket')"),
    deed("a name sent over a pair", "socket", "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
         "a.sendto(b'x', '\\0@UNIX@')", needs_filter=True),
    deed("a descriptor sent over a pair", "socket, array", "a, b = socket.socketpair()",
         "socket.send_fds(a, [b'x'], [0])", needs_filter=True),
    deed("a server", "socket", "socket.create_server(('127.0.0.1', 0))", needs_filter=True),
    deed("a raw socket", "socket", "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"),
    deed("a packet socket", "socket", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"),
    deed("netlink", "socket", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", needs_filter=True),
    deed("vsock", "socket", "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).connect((2, 1024))"),
    deed("kernel crypto socket", "socket", "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)", needs_filter=True),
    deed("a name looked up", "socket", "socket.getaddrinfo('example.org', 80)"),
    deed("a page fetched", "urllib.request", "urllib.request.urlopen('http://127.0.0.1:@TCP@', timeout=0.3)"),
]  # fmt: skip
