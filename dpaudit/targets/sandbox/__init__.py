"""The sandbox of a foreign program: what it may use, see and reach, and how it is ended.

================  ==================================================================================
file              what it does
================  ==================================================================================
``policy``        how much it may use; the level the user asked for, and the level reached
``view``          which folders and environment variables the program sees
``process``       the auditor's side of one program: start, talk under deadlines, end
``supervisor``    a small process between the auditor and the program; standard library only
``namespaces``    Linux namespaces; mounts: all read-only, home and working tree empty, a scratch
``confinement``   capabilities, no new privileges, seccomp, Landlock
``process_tree``  who the processes are, what they use, how all of them are ended; control groups
================  ==================================================================================

What holds at which level, and which test shows it: ``docs/threat-models.md``.
"""
