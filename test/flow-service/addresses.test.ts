import { describe, expect, it } from 'vitest';
import {
  isHttpsOrLoopback,
  isLoopback,
  isWithin,
  meantAddress,
  type Reach,
} from '../../functions/flow-service/addresses.ts';

const ADDRESSES = {
  public: [
    ...['1.1.1.1', '8.8.8.8', '100.63.255.255', '100.128.0.1', '172.15.0.1', '172.32.0.1', '192.167.255.255'],
    ...['2606:4700::1111', '2a00:1450::1', '2001:4860:4860::8888', '64:ff9b::8.8.8.8'],
  ],
  private: [
    ...['10.0.0.1', '100.64.0.1', '100.127.255.255', '172.16.0.1', '172.31.255.255', '192.168.1.1'],
    ...['fc00::1', 'fd00::1'],
  ],
  loopback: ['127.0.0.1', '127.255.255.255', '::1'],
  special: [
    ...['0.0.0.0', '169.254.0.1', '169.254.169.254', '192.0.2.1', '198.18.0.1', '224.0.0.1', '239.255.255.255'],
    ...['192.0.0.1', '192.88.99.1', '198.51.100.1', '203.0.113.1', '3fff::1'],
    ...['240.0.0.1', '255.255.255.255', '::', '::8.8.8.8', '::127.0.0.1', '::ffff:0.0.0.0', '::ffff:8.8.8.8'],
    ...['::ffff:10.0.0.1', '::ffff:127.0.0.1', '::ffff:169.254.169.254', '64:ff9b::10.0.0.1', '64:ff9b::127.0.0.1'],
    ...['64:ff9b::169.254.169.254', '64:ff9b:1::1', '64:ff9b:1::7f00:1', '100::1', '2001::1', '2001:db8::1'],
    ...['2002:7f00:1::', '2002:a00:1::1', 'fd00:ec2::254', 'fe80::1', 'fe80::1%lo', 'fd00::1%lo', 'fec0::1', 'ff02::1'],
  ],
  none: ['localhost', ''],
} as const;

describe.each<[Reach, readonly (keyof typeof ADDRESSES)[]]>([
  ['public', ['public']],
  ['network', ['public', 'private']],
  ['machine', ['loopback']],
])('the reach "%s"', (reach, within) => {
  const rows = Object.entries(ADDRESSES).flatMap(([kind, all]) => all.map((address) => [kind, address] as const));
  it.each(rows)('has only addresses of its kinds: %s %s', (kind, address) => {
    expect(isWithin(reach, address)).toBe(within.some((each) => each === kind));
  });
});

describe('this machine', () => {
  it.each([
    'http://localhost',
    'http://127.0.0.1:80',
    'http://127.1',
    'http://0x7f000001',
    'http://[::1]:1',
    'http://127.9.9.9',
  ])('is %s', (url) => expect(isLoopback(new URL(url))).toBe(true));
  it.each([
    'http://127.example.com',
    'http://localhost.example',
    'http://10.0.0.1',
    'http://[::ffff:7f00:1]',
    'http://0.0.0.0',
  ])('is not %s', (url) => expect(isLoopback(new URL(url))).toBe(false));
});

describe('the token', () => {
  it.each([
    'https://flows.example.com',
    'https://127.0.0.1',
    'http://127.0.0.1:8080',
    'http://localhost',
    'http://[::1]',
  ])('may travel to %s', (url) => expect(isHttpsOrLoopback(new URL(url))).toBe(true));
  it.each(['http://flows.example.com', 'http://10.0.0.1', 'ftp://localhost', 'file:///etc/passwd'])(
    'may not travel to %s',
    (url) => expect(isHttpsOrLoopback(new URL(url))).toBe(false),
  );
});

it.each([
  ['http://flows.example/a?b', 'https://flows.example/v1', 'https://flows.example/a?b'],
  ['http://flows.example/a', 'https://flows.example:8443', 'https://flows.example:8443/a'],
  ['http://flows.example:8443/a', 'https://flows.example:8443', 'https://flows.example:8443/a'],
  ['http://flows.example:8080/a', 'https://flows.example', 'http://flows.example:8080/a'],
  ['http://cdn.flows.example/a', 'https://flows.example', 'http://cdn.flows.example/a'],
  ['http://127.0.0.1/a', 'http://127.0.0.1:9000', 'http://127.0.0.1/a'],
  ['ftp://flows.example/a', 'https://flows.example', 'ftp://flows.example/a'],
])('the address %s, named by the service at %s, means %s', (named, base, meant) => {
  expect(meantAddress(new URL(named), new URL(base)).href).toBe(meant);
});
