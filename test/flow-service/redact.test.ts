import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { redact } from '../../functions/flow-service/redact.ts';

const TOKEN = 'obviously-fake/token+1=';

const base64 = (text: string): string => Buffer.from(text).toString('base64');
const hexOf = (character: string): string => character.charCodeAt(0).toString(16);
const each = (spell: (character: string) => string): string => Array.from(TOKEN, spell).join('');

describe('the token is redacted', () => {
  it.each<[string, string]>([
    ['as it is', TOKEN],
    ['in lower case', TOKEN.toLowerCase()],
    ['in upper case', TOKEN.toUpperCase()],
    ['in JSON, with escaped slashes', TOKEN.replaceAll('/', '\\/')],
    ['in JSON, with every character escaped', each((c) => `\\u00${hexOf(c)}`)],
    ['in a URL', encodeURIComponent(TOKEN)],
    ['in a URL, with every character escaped', each((c) => `%${hexOf(c).toUpperCase()}`)],
    ['in HTML, in decimal', each((c) => `&#${c.charCodeAt(0)};`)],
    ['in HTML, in hexadecimal', TOKEN.replace(/[/=]/g, (c) => `&#x${hexOf(c).toUpperCase()};`)],
  ])('%s', (_, spelling) => expect(redact(`Who is ${spelling}?`, TOKEN)).toBe('Who is [token]?'));

  it.each<[string, (encoded: string) => string]>([
    ['base64', (encoded) => encoded],
    ['base64url', (encoded) => encoded.replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '')],
    ['base64 in JSON', (encoded) => encoded.replaceAll('/', '\\/')],
    ['base64 in a URL', encodeURIComponent],
  ])('in %s, wherever it begins among the encoded bytes', (_, spell) => {
    // The token of these bytes has + and / in its base64, at each place.
    const token = 'fake>>>???~~~fake>>>???~~~';
    for (const before of ['', 'u', 'u:', 'Bearer ', 'user:']) {
      for (const behind of ['', '\n', '"}', ' is not known']) {
        const shown = redact(`<${spell(base64(before + token + behind))}>`, token);
        expect(shown).toContain('[token]');
        // At most a character at each end of the token is left. It holds bits of what stands beside the token.
        expect(shown.length).toBeLessThan(spell(base64(`${before}${behind}`)).length + '<[token]>'.length + 8);
      }
    }
  });

  it('in the base64 of any text around it', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: fc.constantFrom(...'abcXYZ019-._~+/='), minLength: 8, maxLength: 60 }),
        fc.string(),
        fc.string(),
        (token, before, behind) => {
          expect(redact(base64(before + token + behind), token)).toContain('[token]');
        },
      ),
    );
  });

  it('nowhere if it is too short to be one', () => expect(redact('a 1234567 b', '1234567')).toBe('a 1234567 b'));
});
