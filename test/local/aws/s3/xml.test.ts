import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { S3Error } from '../../../../local/aws/s3/errors.ts';
import { childText, parseXml } from '../../../../local/aws/s3/xml.ts';
import { BUCKET, raw, startS3 } from './support.ts';

const keyIn = (xml: string) => childText(parseXml(xml, 'Delete'), 'Key');

describe('a document', () => {
  test.each([
    ['white space', '<Delete>\n  <Key> a\tb </Key>\n</Delete>', ' a\tb '],
    ['only white space', '<Delete><Key> \n</Key></Delete>', ' \n'],
    ['white space around an entity', '<Delete><Key> &#32;</Key></Delete>', '  '],
    ['a number', '<Delete><Key>007</Key></Delete>', '007'],
    ['a number with an exponent', '<Delete><Key>1e3</Key></Delete>', '1e3'],
    ['a truth value', '<Delete><Key>true</Key></Delete>', 'true'],
    ["XML's five entities", '<Delete><Key>&amp;&lt;&gt;&quot;&apos;</Key></Delete>', '&<>"\''],
    ['an entity of an entity', '<Delete><Key>&amp;lt;</Key></Delete>', '&lt;'],
    ['references to characters', '<Delete><Key>&#xe9;&#128512;&#x1;&#13;</Key></Delete>', 'é😀\u0001\r'],
    ['CDATA', '<Delete><Key>a<![CDATA[<!DOCTYPE &amp;]]>b</Key></Delete>', 'a<!DOCTYPE &amp;b'],
    ['a comment', '<Delete><!-- <!DOCTYPE --><Key>a<!-- - -->b</Key></Delete>', 'ab'],
    [
      'a namespace prefix',
      '<s3:Delete xmlns:s3="http://s3.amazonaws.com/doc/2006-03-01/"><s3:Key>a</s3:Key></s3:Delete>',
      'a',
    ],
    ['a declaration', '<?xml version="1.0" encoding="UTF-8"?>\n<Delete><Key>a</Key></Delete>\n', 'a'],
    ['a byte order mark', '\ufeff<Delete><Key>a</Key></Delete>', 'a'],
    ['an empty element', '<Delete><Key/></Delete>', ''],
    ['the name of a property of objects', '<Delete><toString>x</toString><Key>a</Key></Delete>', 'a'],
  ])('with %s keeps its text', (_, xml, key) => {
    expect(keyIn(xml)).toBe(key);
  });

  test.each([
    ['nothing', ''],
    ['no element', 'text'],
    ['an open element', '<Delete>'],
    ['another root', '<Other/>'],
    ['two roots', '<Delete/><Delete/>'],
    ['two roots with content', '<Delete></Delete><Delete/>'],
    ['text after the root', '<Delete/>text'],
    ['text after the root, before a comment', '<Delete/>text<!-- -->'],
    ['crossed elements', '<Delete><Object></Delete></Object>'],
    ['a closing tag without an opening one', '<Delete></Object></Delete>'],
    ['an unknown entity', '<Delete>&x;</Delete>'],
    ['an entity of HTML', '<Delete>&nbsp;</Delete>'],
    ['a bare ampersand', '<Delete>a & b</Delete>'],
    ['half a character', '<Delete>&#xd800;</Delete>'],
    ['the character zero', '<Delete>&#0;</Delete>'],
    ['a character beyond Unicode', '<Delete>&#x110000;</Delete>'],
    ['a document type', '<!DOCTYPE Delete><Delete/>'],
    ['an entity of its own', '<!DOCTYPE d [<!ENTITY x "y">]><Delete>&x;</Delete>'],
    ['a file as an entity', '<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]><Delete>&x;</Delete>'],
    ['an unknown declaration', '<Delete><!foo></Delete>'],
    ['an unfinished comment', '<Delete/><!-- '],
    ['an unfinished CDATA', '<Delete><![CDATA[</Delete>'],
    ['an attribute without quotes', '<Delete a=b/>'],
    ['an element named __proto__', '<Delete><__proto__><polluted>1</polluted></__proto__></Delete>'],
    ['elements too deep', '<Delete>'.repeat(100) + '</Delete>'.repeat(100)],
  ])('with %s is MalformedXML', (_, xml) => {
    expect(() => parseXml(xml, 'Delete')).toThrow(S3Error);
    expect(() => parseXml(xml, 'Delete')).toThrow(expect.objectContaining({ code: 'MalformedXML' }));
    expect({}).not.toHaveProperty('polluted');
  });

  test('that is not UTF-8 is refused, and deletes nothing under another name', async () => {
    const { endpoint } = await startS3();
    const body = Buffer.from('<Delete><Object><Key>a\xff</Key></Object></Delete>', 'latin1');
    const headers = { 'content-md5': createHash('md5').update(body).digest('base64') };
    const { outcome } = await raw(endpoint, 'POST', `/${BUCKET}?delete`, { headers, body });
    expect(outcome).toBe('400 MalformedXML');
  });
});
