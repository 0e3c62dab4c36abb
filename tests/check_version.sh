#!/bin/sh
# The version stands in configure.ac; NEWS and the packages name the same.
set -eu
cd "${top_srcdir:-$(dirname "$0")/..}"

version=$(sed -n 's/^AC_INIT(\[leasefs\], \[\(.*\)\])$/\1/p' configure.ac)
news=$(sed -n 's/^Version \([0-9.]*\).*/\1/p' NEWS | head -n 1)
package=$(sed -n '1s/^leasefs (\([0-9.]*\).*/\1/p' debian/changelog)
spec=$(sed -n 's/^Version: //p' share/leasefs.spec)
arch=$(sed -n 's/^pkgver=//p' share/PKGBUILD)
alpine=$(sed -n 's/^pkgver=//p' share/APKBUILD)

echo 1..5
status=0
tell() { # NUMBER VERSION FILE
    if [ -n "$version" ] && [ "$2" = "$version" ]; then
        echo "ok $1 - $3 names the version of configure.ac"
    else
        echo "not ok $1 - $3 names '$2', configure.ac '$version'"
        status=1
    fi
}
tell 1 "$news" NEWS
tell 2 "$package" debian/changelog
tell 3 "$spec" share/leasefs.spec
tell 4 "$arch" share/PKGBUILD
tell 5 "$alpine" share/APKBUILD
exit $status
