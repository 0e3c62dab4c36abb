"""What test_control.sh asks of .leasefs.

    control.py value FILE SAMPLE [LABEL=VALUE…]   the sum of the samples that match
    control.py check FILE                         is it good exposition format, with help and type everywhere
    control.py slowly MOUNT COUNT                 reads `locks` a little at a time while leases come and go
"""
import os
import sys


def families(path):
    from prometheus_client.parser import text_string_to_metric_families

    with open(path, encoding="utf-8") as file:
        return list(text_string_to_metric_families(file.read()))


def value(path, sample, *labels):
    wanted = dict(label.split("=", 1) for label in labels)
    total = 0
    found = False
    for family in families(path):
        for s in family.samples:
            if s.name == sample and wanted.items() <= s.labels.items():
                total += s.value
                found = True
    print("%g" % total if found else "none")


def check_histogram(family):
    series = {}
    for s in family.samples:
        labels = {k: v for k, v in s.labels.items() if k != "le"}
        one = series.setdefault(tuple(sorted(labels.items())), {"buckets": []})
        if s.name.endswith("_bucket"):
            one["buckets"].append((float(s.labels["le"]), s.value))
        else:
            one[s.name[len(family.name):]] = s.value
    for one in series.values():
        buckets = one["buckets"]
        assert buckets == sorted(buckets), "buckets fall"
        assert [c for _, c in buckets] == sorted(c for _, c in buckets), "counts fall"
        assert buckets[-1][0] == float("inf") and buckets[-1][1] == one["_count"], "+Inf is not the count"
        assert one["_sum"] >= 0


def check(path):
    names = set()
    for family in families(path):
        assert family.name.startswith("leasefs_"), family.name
        assert family.name not in names, family.name + " twice"
        names.add(family.name)
        assert family.documentation, family.name + " has no help"
        assert family.type in ("counter", "gauge", "histogram"), family.name + ": " + family.type
        assert family.samples, family.name + " has no sample"
        if family.type == "counter":
            assert all(s.name.endswith("_total") for s in family.samples), family.name
        if family.type == "histogram":
            check_histogram(family)
    print("ok", len(names))


def make(mount, name):
    os.close(os.open(os.path.join(mount, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def slowly(mount, count):
    count = int(count)
    for i in range(count):
        make(mount, "slow%d" % i)
    text = b""
    with open(os.path.join(mount, ".leasefs/locks"), "rb", buffering=0) as file:
        n = 0
        while True:
            part = file.read(3000)
            if not part:
                break
            text += part
            if n < count:
                os.unlink(os.path.join(mount, "slow%d" % n))
                make(mount, "late%d" % n)
                n += 3
        file.seek(0)
        again = b""
        while len(again) < len(text):
            part = file.read(100000)
            assert part, "it is shorter now"
            again += part
        assert again == text, "it has changed"
    told = [line.split("\t")[0] for line in text.decode().splitlines()[1:]]
    assert len(told) == len(set(told)), "told twice"
    assert not [name for name in told if name.startswith("late")], "told of what came later"
    kept = {"slow%d" % i for i in range(count) if i % 3 or i >= n}
    assert kept <= set(told), "not told: %s" % sorted(kept - set(told))[:3]
    for name in kept | {"late%d" % i for i in range(0, n, 3)}:
        os.unlink(os.path.join(mount, name))
    print("ok")


if __name__ == "__main__":
    commands = {"value": value, "check": check, "slowly": slowly}
    commands[sys.argv[1]](*sys.argv[2:])
