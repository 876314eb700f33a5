import { describe, expect, it } from 'vitest';
import { isHttpsOrLoopback, isLoopback, isPublicAddress } from '../../functions/flow-service/addresses.ts';

describe('a public address', () => {
  it.each(['1.1.1.1', '8.8.8.8', '100.63.255.255', '100.128.0.1', '172.15.0.1', '172.32.0.1', '192.167.255.255'])(
    'is %s',
    (address) => expect(isPublicAddress(address)).toBe(true),
  );
  it.each(['2606:4700::1111', '2a00:1450::1', '2001:4860:4860::8888', '64:ff9b::8.8.8.8'])('is %s', (address) =>
    expect(isPublicAddress(address)).toBe(true),
  );
});

describe('an address that is not public', () => {
  it.each([
    '0.0.0.0',
    '10.0.0.1',
    '100.64.0.1',
    '100.127.255.255',
    '127.0.0.1',
    '127.255.255.255',
    '169.254.169.254',
    '172.16.0.1',
    '172.31.255.255',
    '192.0.2.1',
    '192.168.1.1',
    '198.18.0.1',
    '224.0.0.1',
    '239.255.255.255',
    '240.0.0.1',
    '255.255.255.255',
    '::',
    '::1',
    '::ffff:8.8.8.8',
    '::ffff:127.0.0.1',
    '::8.8.8.8',
    '64:ff9b::10.0.0.1',
    '64:ff9b::169.254.169.254',
    '64:ff9b:1::1',
    '100::1',
    '2001::1',
    '2001:db8::1',
    '2002:a00:1::1',
    'fc00::1',
    'fd00:ec2::254',
    'fe80::1',
    'fec0::1',
    'ff02::1',
    'localhost',
    '',
  ])('is %s', (address) => expect(isPublicAddress(address)).toBe(false));
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
