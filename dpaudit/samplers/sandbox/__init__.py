"""How somebody else's program is held while it gives numbers: what it may use, see and reach, and how it is ended.

===================  ===============================================================================================
file                 idea
===================  ===============================================================================================
``policy``           what the user asked for (``full``, ``require``, ``network``, ``none``) and what
was reached ``view``             which folders the program sees, and which environment variables
``process``          the auditor's side of one program: start, talk under deadlines, end
``supervisor``       a small process between the auditor and the program; starts with the standard
library alone ``namespaces``       Linux namespaces
``mounts``           the mounts inside: everything read-only, home and working tree empty, a private
scratch ``confinement``      capabilities, no new privileges, seccomp, Landlock
``cgroup``           control groups (version 2), where they can be had
``system_calls``     system calls that Python has no name for
``process_tree``     who the processes are, what they use, how all of them are ended
``limits``           how much they may use
===================  ===============================================================================================

What holds at which level, and which test shows it: ``docs/threat-models.md``.
"""
