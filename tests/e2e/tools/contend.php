#!/usr/bin/php
<?php
// contend.php KIND L: gets the lock L as a PHP program does, tells "held", lasts until its input ends, gives it back.
declare(strict_types=1);

function hold(): void
{
    echo "held\n";
    stream_get_contents(STDIN);
}

function refused(string $why): void
{
    fwrite(STDERR, "$why\n");
    exit(1);
}

function locked(string $path, int $how): void
{
    $file = fopen($path, 'c') or refused('fopen');
    flock($file, $how) or refused('flock');
    hold();
    fclose($file);
}

[, $kind, $path] = $argv;
switch ($kind) {
    case 'flock':
        locked($path, LOCK_EX);
        break;
    case 'flock_nb':
        locked($path, LOCK_EX | LOCK_NB);
        break;
    case 'fopen_x':
        $file = @fopen($path, 'x') or refused('fopen');
        fwrite($file, (string) getmypid());
        fclose($file) or refused('fclose');
        hold();
        unlink($path) or refused('unlink');
        break;
    case 'symfony':
        require '/usr/share/php/Symfony/Component/Lock/autoload.php';
        $store = new Symfony\Component\Lock\Store\FlockStore(dirname($path));
        $lock = (new Symfony\Component\Lock\LockFactory($store))->createLock(basename($path));
        $lock->acquire(true) or refused('acquire');
        hold();
        $lock->release();
        break;
}
