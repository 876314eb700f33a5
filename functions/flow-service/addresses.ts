import { lookup } from 'node:dns';
import { BlockList, isIP, type LookupFunction } from 'node:net';
import { ForbiddenAddressError } from './errors.ts';

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

/** Special-purpose ranges within 2000::/3, the only public IPv6 range (IANA IPv6 Special-Purpose Address Registry). */
const NOT_PUBLIC_IPV6 = [
  ['2001::', 23],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['3fff::', 20],
] as const;

/** Networks without IPv4 reach the public IPv4 internet through this prefix (RFC 6052). The IPv4 rules apply in it. */
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
 * Tells whether an IP address is on the public internet. Loopback, link-local, private, shared (CGNAT), unique-local,
 * multicast, documentation and reserved addresses are not. No IPv4-mapped IPv6 address counts as public.
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

/** The host of a URL, without the brackets around an IPv6 address. */
export const hostOf = (url: URL): string => url.hostname.replace(/^\[(.*)\]$/, '$1');

/** Tells whether a URL names this machine. `URL` has already normalised every spelling of an IPv4 address. */
export function isLoopback(url: URL): boolean {
  const host = hostOf(url);
  return host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
}

/** Tells whether the token may travel to a URL unread by others: over https, or over http within this machine. */
export const isHttpsOrLoopback = (url: URL): boolean =>
  url.protocol === 'https:' || (url.protocol === 'http:' && isLoopback(url));

export const notPublicError = (host: string): ForbiddenAddressError =>
  new ForbiddenAddressError(`${host}: expected a public address`);

/** Resolves a name to its public addresses only. The address that was checked is the one that gets connected to. */
export const publicLookup: LookupFunction = (hostname, options, callback) => {
  lookup(hostname, { ...options, all: true }, (error, addresses) => {
    if (error !== null) return callback(error, []);
    const allowed = addresses.filter(({ address }) => isPublicAddress(address));
    const [first] = allowed;
    if (first === undefined) return callback(notPublicError(hostname), []);
    return options.all === true ? callback(null, allowed) : callback(null, first.address, first.family);
  });
};
