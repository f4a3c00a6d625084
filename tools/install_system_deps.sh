#!/bin/sh
# Installs the programs outside Python that the system tests drive: kcat, Java with Maven, Go, Node.js, a C++ compiler with
# OpenSSL and curl, a Kerberos server and Chromium.
# Programs that are installed already are skipped; on a system without apt-get it only prints what is missing.
set -eu

packages=""
need() { # need PROGRAM PACKAGE...: adds the packages to the list if the program is not on the path
    program=$1
    shift
    command -v "$program" >/dev/null 2>&1 || packages="$packages $*"
}

need kcat kcat
need javac default-jdk-headless
need mvn maven
need go golang-go
need node nodejs
need npm npm
need g++ build-essential
[ -e /usr/include/openssl/ssl.h ] || packages="$packages libssl-dev"
[ -e /usr/include/curl/curl.h ] || [ -e "/usr/include/$(uname -m)-linux-gnu/curl/curl.h" ] ||
    packages="$packages libcurl4-openssl-dev"
command -v google-chrome >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 || need chromium chromium
PATH="$PATH:/usr/sbin"
need krb5kdc krb5-kdc krb5-user libsasl2-modules-gssapi-mit
need kadmin.local krb5-admin-server

if [ -z "$packages" ]; then
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "The system tests need these programs, please install them:$packages" >&2
    exit 1
fi
run=""
if [ "$(id -u)" -ne 0 ]; then
    run="sudo"
fi
echo "installing$packages with apt-get (under a minute)"
$run apt-get update -qq
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive $run apt-get install -y -qq --no-install-recommends $packages >/dev/null
