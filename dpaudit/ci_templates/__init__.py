"""The files that ``dpaudit init`` writes: dpaudit as a gate on GitHub, on GitLab and in pytest."""
