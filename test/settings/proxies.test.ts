import { describe, expect, it } from 'vitest';
import { parseEnv } from '../../functions/settings/environment.ts';
import { checkProxies, shownVariables, variablesOf } from '../../functions/settings/proxies.ts';
import { env, messagesOf } from './fixtures.ts';

describe('the proxies of an environment', () => {
  const proxiesIn = (variables: Record<string, string>) => {
    const { issues, proxies } = checkProxies(variables);
    expect(issues).toEqual([]);
    return { https: proxies.https?.href, http: proxies.http?.href, except: proxies.except };
  };

  it('are read from the variables that other programs read, lower case first', () => {
    expect(
      proxiesIn({
        https_proxy: 'http://lower.example:3128',
        HTTPS_PROXY: 'http://upper.example:3128',
        HTTP_PROXY: 'https://other.example',
        NO_PROXY: 'a.example, .b.example  10.0.0.0/8',
      }),
    ).toEqual({
      https: 'http://lower.example:3128/',
      http: 'https://other.example/',
      except: ['a.example', '.b.example', '10.0.0.0/8'],
    });
  });

  it('need no scheme, may have a login, and are none if empty', () => {
    expect(proxiesIn({ HTTPS_PROXY: 'proxy.example:3128' })).toMatchObject({ https: 'http://proxy.example:3128/' });
    expect(proxiesIn({ HTTPS_PROXY: 'me:fake@proxy.example:3128' }).https).toBe('http://me:fake@proxy.example:3128/');
    expect(proxiesIn({ https_proxy: '', HTTPS_PROXY: ' ', NO_PROXY: '' })).toEqual({});
  });

  it.each([
    'socks5://me:opensesame@proxy.example:1080',
    'http://me:opensesame@proxy.example:3128/proxy.pac',
    'http://me:open/sesame@proxy.example:3128',
    'http://me:opensesame#1@proxy.example:3128',
    'me:opensesame@proxy example',
    'me:opensesame@proxy.example:99999',
    'http://me:opensesame%@proxy.example:3128',
    'file:///opensesame@etc',
    'http://',
  ])('are refused without quoting a secret if one is %s', (address) => {
    const { issues } = checkProxies({ HTTPS_PROXY: address });
    expect(issues).toEqual([expect.stringMatching(/^HTTPS_PROXY: expected /)]);
    expect(issues.join()).not.toMatch(/sesame/);
  });

  it('come back from the variables that are made of them', () => {
    const variables = {
      HTTPS_PROXY: 'http://me:fake@proxy.example:3128',
      HTTP_PROXY: 'http://127.0.0.1:1',
      NO_PROXY: 'a,b',
    };
    expect(variablesOf(checkProxies(variables).proxies)).toEqual(variables);
    expect(shownVariables({ ...variables, OTHER: 'http://me:fake@x' })).toEqual({
      HTTPS_PROXY: 'http://proxy.example:3128',
      HTTP_PROXY: 'http://127.0.0.1:1',
      NO_PROXY: 'a,b',
      OTHER: 'http://me:fake@x',
    });
    expect(variablesOf({})).toEqual({});
  });

  it('are among the settings of the functions, and a wrong one is an issue of theirs', () => {
    expect(parseEnv(env({ HTTPS_PROXY: 'http://proxy.example:3128' })).proxies.https?.href).toBe(
      'http://proxy.example:3128/',
    );
    expect(messagesOf(() => parseEnv(env({ HTTPS_PROXY: 'ftp://x', PIPELINE: 'No Spaces' })))).toEqual([
      expect.stringMatching(/^PIPELINE: /),
      expect.stringMatching(/^HTTPS_PROXY: expected .*, got ftp:\/\/x$/),
    ]);
  });
});
