#!/usr/bin/tclsh
# contend.tcl L: gets the lock L as a Tcl program does, tells "held", lasts until its input ends, gives it back.
set path [lindex $argv 0]
close [open $path {WRONLY CREAT EXCL}]
puts held
flush stdout
read stdin
file delete $path
