import { lookup } from 'node:dns';
import { BlockList, isIP, type LookupFunction } from 'node:net';
import { ForbiddenAddressError } from './errors.ts';

/*
 * Guards where the service may lead a function. The service can redirect an asset, or name the address of a result. An
 * attacker who controls the service could use that to read from places that only the function can reach: credentials at
 * a link-local address, or a server in the company's network. So each address must be within the reach of the service.
 */

/**
 * Tells whether an address is in ranges such as `10.0.0.0/8`. One with a zone (`fe80::1%eth0`) belongs to one link: no
 * range has it.
 */
function within(ranges: readonly string[]): (address: string) => boolean {
  // Two lists, because one of both families would find an IPv4-mapped IPv6 address in an IPv4 range.
  const [ipv4, ipv6] = [new BlockList(), new BlockList()];
  for (const range of ranges) {
    const [network = '', bits] = range.split('/');
    if (isIP(network) === 4) ipv4.addSubnet(network, Number(bits), 'ipv4');
    else ipv6.addSubnet(network, Number(bits), 'ipv6');
  }
  return (address) => {
    const family = address.includes('%') ? 0 : isIP(address);
    return family === 4 ? ipv4.check(address, 'ipv4') : family === 6 && ipv6.check(address, 'ipv6');
  };
}

/** Networks without IPv4 reach the public IPv4 internet through this prefix (RFC 6052). The IPv4 rules apply in it. */
const NAT64_PREFIX = '64:ff9b::';

/** Private and shared IPv4 addresses, within an organisation (RFC 1918, RFC 6598). */
const PRIVATE_IPV4 = ['10.0.0.0/8', '100.64.0.0/10', '172.16.0.0/12', '192.168.0.0/16'];

/** Special-purpose IPv4 ranges (IANA IPv4 Special-Purpose Address Registry, RFC 6890), multicast and reserved. */
const NOT_PUBLIC_IPV4 = [
  ...PRIVATE_IPV4,
  ...['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '192.0.0.0/24', '192.0.2.0/24', '192.88.99.0/24', '198.18.0.0/15'],
  ...['198.51.100.0/24', '203.0.113.0/24', '224.0.0.0/4', '240.0.0.0/4'],
];

/** Special-purpose ranges within 2000::/3, the only public IPv6 range (IANA IPv6 Special-Purpose Address Registry). */
const NOT_PUBLIC_IPV6 = ['2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20'];

/** Ranges that hold the public internet. {@link inSpecialRanges} has the exceptions in them. */
const inPublicRanges = within(['0.0.0.0/0', '2000::/3', `${NAT64_PREFIX}/96`]);
const inSpecialRanges = within([
  ...[...NOT_PUBLIC_IPV4, ...NOT_PUBLIC_IPV6],
  ...NOT_PUBLIC_IPV4.map((range) => range.split('/')).map(
    ([network, bits]) => `${NAT64_PREFIX}${network}/${96 + Number(bits)}`,
  ),
]);

/**
 * Addresses within an organisation, with unique-local IPv6 (RFC 4193). All other special-purpose addresses belong to one
 * machine or one link, such as that of an instance's metadata.
 */
const inPrivateRanges = within([...PRIVATE_IPV4, 'fc00::/7']);

/** Metadata and other services of an EC2 instance. (Amazon EC2 User Guide, "Instance metadata": `fd00:ec2::254`.) */
const inEc2Ranges = within(['fd00:ec2::/32']);

const isLoopbackAddress = within(['127.0.0.0/8', '::1/128']);

/**
 * The addresses that a service may send us to. Each list names what it allows, so that an unknown form of an address,
 * such as an IPv4 address within an IPv6 one, is in none.
 *
 *   public    addresses of the public internet
 *   network   these, and private addresses, but nothing of this machine or link
 *   machine   loopback addresses only
 */
export type Reach = 'public' | 'network' | 'machine';

/**
 * Tells whether an IP address is on the public internet. Loopback, link-local, private, shared (CGNAT), unique-local,
 * multicast, documentation and reserved addresses are not. No IPv4-mapped IPv6 address counts as public.
 */
const isPublicAddress = (address: string): boolean => inPublicRanges(address) && !inSpecialRanges(address);

/** Tells whether an address is private: of an organisation's network, neither public nor of this machine or link. */
const isPrivateAddress = (address: string): boolean => inPrivateRanges(address) && !inEc2Ranges(address);

/** What is within each reach, and how a message says it. */
const REACHES: Readonly<Record<Reach, { readonly has: (address: string) => boolean; readonly words: string }>> = {
  public: { has: isPublicAddress, words: 'a public address' },
  network: {
    has: (address) => isPublicAddress(address) || isPrivateAddress(address),
    words: 'a public or private address',
  },
  machine: { has: isLoopbackAddress, words: 'a loopback address' },
};

export const isWithin = (reach: Reach, address: string): boolean => REACHES[reach].has(address);

/**
 * Where a service may send us, by its own address. A public service may lead only to public addresses. A private one
 * may lead to private addresses too, but never to this machine. A service on this machine, as in a local run, leads
 * only to this machine.
 * @param address undefined if it is unknown.
 */
export function reachOf(address: string | undefined): Reach {
  if (address === undefined) return 'public';
  const plain = address.replace(/^::ffff:(?=\d+\.)/i, '');
  if (isLoopbackAddress(plain)) return 'machine';
  return isPrivateAddress(plain) ? 'network' : 'public';
}

/** The host of a URL, without the brackets around an IPv6 address. */
export const hostOf = (url: URL): string => url.hostname.replace(/^\[(.*)\]$/, '$1');

/** Tells whether a URL names this machine. `URL` has already normalised every spelling of an IPv4 address. */
export function isLoopback(url: URL): boolean {
  const host = hostOf(url);
  return host === 'localhost' || isLoopbackAddress(host);
}

/** Tells whether an address holds a user or a password. HTTP would send them as `Authorization: Basic`. */
export const hasCredentials = ({ username, password }: URL): boolean => username !== '' || password !== '';

/**
 * The address that a service means by an http one of its own host. If TLS ends in a proxy before it, it does not know that
 * it is at https.
 */
export function meantAddress(url: URL, base: URL): URL {
  const isOwn = url.hostname === base.hostname && ['', base.port].includes(url.port);
  if (!isOwn || url.protocol !== 'http:' || base.protocol !== 'https:') return url;
  return Object.assign(new URL(url), { protocol: base.protocol, port: base.port });
}

/** Tells whether the token may travel to a URL unread by others: over https, or over http within this machine. */
export const isHttpsOrLoopback = (url: URL): boolean =>
  url.protocol === 'https:' || (url.protocol === 'http:' && isLoopback(url));

export const outOfReachError = (host: string, reach: Reach): ForbiddenAddressError =>
  new ForbiddenAddressError(`${host}: expected ${REACHES[reach].words}`);

/** Resolves names to the addresses within a reach. The address that was checked is the one that gets connected to. */
export const lookupWithin =
  (reach: Reach): LookupFunction =>
  (hostname, options, callback) => {
    lookup(hostname, { ...options, all: true }, (error, addresses) => {
      if (error !== null) return callback(error, []);
      const allowed = addresses.filter(({ address }) => isWithin(reach, address));
      const [first] = allowed;
      if (first === undefined) return callback(outOfReachError(hostname, reach), []);
      return options.all === true ? callback(null, allowed) : callback(null, first.address, first.family);
    });
  };
