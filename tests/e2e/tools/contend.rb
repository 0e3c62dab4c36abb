#!/usr/bin/ruby
# frozen_string_literal: true

# contend.rb KIND L: gets the lock L as a Ruby program does, tells "held", lasts until its input ends, gives it back.

def hold
  $stdout.puts 'held'
  $stdout.flush
  $stdin.read
end

def locked(path, how)
  File.open(path, File::RDWR | File::CREAT) do |file|
    abort 'flock: refused' unless file.flock(how)
    hold
  end
end

kind, path = ARGV
case kind
when 'flock' then locked(path, File::LOCK_EX)
when 'flock_nb' then locked(path, File::LOCK_EX | File::LOCK_NB)
when 'excl'
  File.open(path, File::WRONLY | File::CREAT | File::EXCL) { |file| file.puts Process.pid }
  hold
  File.unlink(path)
when 'lockfile'
  require 'lockfile'
  Lockfile.new(path, retries: 0) { hold }
end
