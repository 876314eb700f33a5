import { describe, expect, it } from 'vitest';
import { parseEnv } from '../../functions/settings/environment.ts';
import { env, messagesOf } from './fixtures.ts';

describe('the address of the flow service', () => {
  const parsed = (url: string) => parseEnv(env({ FLOW_SERVICE_URL: url })).baseUrl.href;

  it.each([
    ['https://flows.example.com', 'https://flows.example.com/'],
    ['https://flows.example.com/v1/', 'https://flows.example.com/v1'],
    ['https://flows.example.com/v1//', 'https://flows.example.com/v1'],
    ['http://127.0.0.1:8080/', 'http://127.0.0.1:8080/'],
  ])('accepts %s', (given, expected) => {
    expect(parsed(given)).toBe(expected);
  });

  it.each([
    'http://flows.example.com',
    'https://flows.example.com/?key=1',
    'https://flows.example.com/#top',
    'flows.example.com',
    '',
  ])('refuses %s', (given) => {
    expect(messagesOf(() => parsed(given))).toEqual([expect.stringMatching(/^FLOW_SERVICE_URL: expected /)]);
  });

  it.each([
    'https://me:opensesame@flows.example.com/',
    'http://me:opensesame@flows.example.com/',
    'https://flows.example.com/?token=opensesame',
    'https//me:x//me:opensesame@flows',
    'https://me:open/opensesame@flows.example.com',
    'me:opensesame@flows.example.com',
  ])('does not quote a possible password in %s', (given) => {
    const issues = messagesOf(() => parsed(given));
    expect(issues).toHaveLength(1);
    expect(issues.join()).not.toContain('opensesame');
  });
});
