<?php
// client_laravel PORT: the locks of Laravel's cache, through phpredis; the lines are those of client_redis_py.py.
// It counts in seconds, and cannot extend (that came with Laravel 12).
require_once '/usr/share/php/Illuminate/Cache/autoload.php';
require_once '/usr/share/php/Illuminate/Redis/autoload.php';

$manager = new Illuminate\Redis\RedisManager(null, 'phpredis', [
    'default' => ['host' => '127.0.0.1', 'port' => (int) $argv[1], 'database' => 0],
]);
$store = new Illuminate\Cache\RedisStore($manager, '');
$lock = null;

function request($words)
{
    global $store, $lock;

    switch ($words[0]) {
    case 'acquire':
        $lock = $store->lock($words[1], (int) ceil($words[2] / 1000));
        return $lock->get() ? 'held' : 'refused';
    case 'wait':
        $lock = $store->lock($words[1], (int) ceil($words[2] / 1000))->betweenBlockedAttemptsSleepFor(20);
        try {
            return $lock->block((int) ceil($words[3])) ? 'held' : 'refused';
        } catch (Illuminate\Contracts\Cache\LockTimeoutException $e) {
            return 'refused';
        }
    case 'extend':
        return 'cannot';
    case 'release':
        return $lock->release() ? 'ok' : 'not-held';
    case 'forge':
        return $store->restoreLock($words[1], 'forged')->release() ? 'ok' : 'not-held';
    }
    return 'no such request';
}

while (($line = fgets(STDIN)) !== false) {
    $words = explode(' ', trim($line));
    $mark = array_shift($words);
    try {
        $answer = request($words);
    } catch (Throwable $wrong) {
        $answer = get_class($wrong) . ': ' . $wrong->getMessage();
    }
    echo "$mark ", strtr($answer, "\n", ' '), "\n";
}
