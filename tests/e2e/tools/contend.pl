#!/usr/bin/perl
# contend.pl KIND L: gets the lock L as a Perl program does, tells "held", lasts until its input ends, gives it back.
use strict;
use warnings;
use Fcntl qw(:flock O_CREAT O_EXCL O_WRONLY LOCK_EX LOCK_NB);

sub hold {
    $| = 1;
    print "held\n";
    1 while <STDIN>;
}

sub locked {
    my ($path, $how) = @_;
    open my $file, '>>', $path or die "open: $!\n";
    flock $file, $how or die "flock: $!\n";
    hold();
    close $file or die "close: $!\n";
}

my %kinds = (
    flock    => sub { locked($_[0], LOCK_EX) },
    flock_nb => sub { locked($_[0], LOCK_EX | LOCK_NB) },
    sysopen  => sub {
        sysopen my $file, $_[0], O_WRONLY | O_CREAT | O_EXCL or die "sysopen: $!\n";
        print $file "$$\n";
        close $file or die "close: $!\n";
        hold();
        unlink $_[0] or die "unlink: $!\n";
    },
    nfslock => sub {
        require File::NFSLock;
        my $lock = File::NFSLock->new($_[0], LOCK_EX | LOCK_NB) or die "File::NFSLock: $File::NFSLock::errstr\n";
        hold();
        $lock->unlock or die "unlock: $File::NFSLock::errstr\n";
    },
    simple => sub {
        require LockFile::Simple;
        my $manager = LockFile::Simple->make(-max => 1, -delay => 1);
        $manager->trylock($_[0]) or die "LockFile::Simple: refused\n";
        hold();
        $manager->unlock($_[0]) or die "unlock failed\n";
    },
);

my ($kind, $path) = @ARGV;
eval { $kinds{$kind}->($path); 1 } or do {
    print STDERR "$kind: $@";
    exit 1;
};
