# tclsh normal.tcl METHOD SEED: Box and Muller's transform, both outputs, of expr's rand().
expr {srand([lindex $argv 1])}
fconfigure stdout -translation binary -buffersize 65536
proc serve {} {
    set have 0
    while {[gets stdin n] >= 0} {
        for {set i 0} {$i < $n} {incr i} {
            if {$have} {set x $kept} else {
                set r [expr {sqrt(-2 * log(1 - rand()))}]
                set angle [expr {2 * acos(-1) * rand()}]
                set x [expr {$r * cos($angle)}]
                set kept [expr {$r * sin($angle)}]
            }
            set have [expr {!$have}]
            puts -nonewline [binary format q $x]
        }
        flush stdout
    }
}
serve
