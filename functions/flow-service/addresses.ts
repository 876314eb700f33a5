import { BlockList, isIP } from 'node:net';

/** Special-purpose IPv4 ranges (IANA IPv4 Special-Purpose Address Registry, RFC 6890), multicast and reserved. */
const NOT_PUBLIC_IPV4 = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 4],
  ['240.0.0.0', 4],
] as const;

/** What is not for the public within 2000::/3, the only IPv6 range that is (IANA IPv6 Special-Purpose Registry). */
const NOT_PUBLIC_IPV6 = [
  ['2001::', 23],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['3fff::', 20],
] as const;

/** Networks without IPv4 reach the public IPv4 internet through this prefix (RFC 6052); the IPv4 rules hold in it. */
const NAT64_PREFIX = '64:ff9b::';

const globalUnicast = new BlockList();
globalUnicast.addSubnet('2000::', 3, 'ipv6');
globalUnicast.addSubnet(NAT64_PREFIX, 96, 'ipv6');

const notPublic4 = new BlockList();
const notPublic6 = new BlockList();
for (const [network, bits] of NOT_PUBLIC_IPV4) {
  notPublic4.addSubnet(network, bits, 'ipv4');
  notPublic6.addSubnet(`${NAT64_PREFIX}${network}`, 96 + bits, 'ipv6');
}
for (const [network, bits] of NOT_PUBLIC_IPV6) notPublic6.addSubnet(network, bits, 'ipv6');

/**
 * Whether an IP address is one on the public internet. Loopback, link-local, private, shared (CGNAT), unique-local,
 * multicast, documentation and reserved ones are not; nor is an IPv4-mapped IPv6 address, whatever it maps.
 */
export function isPublicAddress(address: string): boolean {
  switch (isIP(address)) {
    case 4:
      return !notPublic4.check(address, 'ipv4');
    case 6:
      return globalUnicast.check(address, 'ipv6') && !notPublic6.check(address, 'ipv6');
    default:
      return false;
  }
}

/** The host of a URL without the brackets around an IPv6 address. */
export const hostOf = (url: URL): string => url.hostname.replace(/^\[(.*)\]$/, '$1');

/** Whether a URL names this very machine. `URL` has already brought every spelling of an IPv4 address into one. */
export function isLoopback(url: URL): boolean {
  const host = hostOf(url);
  return host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
}
