/** What operations never show, in data and in texts. */
import { describe, expect, test } from 'vitest'
import { defaultSecrets, redactorOf } from '../../src/operations/redact.ts'

const redactor = redactorOf(defaultSecrets)
const hidden = '[redacted]'

describe('[O08] in a text', () => {
  test.each([
    ['token=S3 and more', `token=${hidden} and more`],
    ['password: S3, user: ada', `password: ${hidden}, user: ada`],
    ['token => S3', `token => ${hidden}`],
    ['api key: S3', `api key: ${hidden}`],
    ['access__token=S3&a=1', `access__token=${hidden}&a=1`],
    ['__token__=S3', `__token__=${hidden}`],
    ['Authorization: token ghp_S3', `Authorization: ${hidden}`],
    ['Authorization: Bearer S3\nAccept: text', `Authorization: ${hidden}\nAccept: text`],
    ['Cookie: a=1; session=S3\r\nHost: h', `Cookie: ${hidden}\r\nHost: h`],
    ['{"authorization":"Bearer S3","n":1}', `{"authorization":${hidden},"n":1}`],
    ['{"credentials":{"k":"S3","l":{"m":"}S3"}},"n":1}', `{"credentials":${hidden},"n":1}`],
    ['"token":["S3", "S3"], n', `"token":${hidden}, n`],
    ["{ cookie: [ 'a=S3', 'b=S3' ] }", `{ cookie: ${hidden} }`],
    [String.raw`{"secret":"S3\"S3\\","n":1}`, `{"secret":${hidden},"n":1}`],
    [String.raw`"{\"secret\":\"S3\\\"S3\",\"n\":1}"`, String.raw`"{\"secret\":${hidden},\"n\":1}"`],
    ['token: "S3 is not closed', `token: ${hidden}`],
    ['credentials: {"k": ["S3"', `credentials: ${hidden}`],
    [
      'cannot read private_key=-----BEGIN RSA PRIVATE KEY-----\nS3\nS3==\n-----END RSA PRIVATE KEY-----\nof ada',
      `cannot read private_key=${hidden}\nof ada`,
    ],
    ['private key: -----BEGIN PRIVATE KEY-----\\nS3\\nS3', `private key: ${hidden}`],
    ['private key:\\n-----BEGIN PRIVATE KEY-----\\nS3', `private key:${hidden}`],
    [
      'private key=-----BEGIN EC PARAMETERS-----\nBg==\n-----END EC PARAMETERS-----\n-----BEGIN EC PRIVATE KEY-----\nS3\n-----END EC PRIVATE KEY-----.',
      `private key=${hidden}.`,
    ],
    ['mytoken: fine, tokens: fine', 'mytoken: fine, tokens: fine'],
    ['token:', 'token:'],
  ])('%s', (text, shown) => {
    expect(redactor.text(text)).toBe(shown)
    expect(redactor.text(shown)).toBe(shown)
  })

  test('however long and odd it is, soon', () => {
    const started = performance.now()
    for (const odd of ['\\', '"', '{', 'token', 'token:', 't_', 'token:{\\'])
      redactor.text(`credentials: [${odd.repeat(20_000)}`)
    for (const odd of ['t-', 'c', '\\"']) redactor.input(JSON.stringify(odd.repeat(5_000)))
    expect(performance.now() - started).toBeLessThan(1_000)
  })
})

describe('[O08] in data', () => {
  test.each(['token_', '__token__', 'access__token', 'ACCESS-TOKEN', 'api.key', 'to ken'])('the key %s', (key) => {
    expect(JSON.parse(redactor.input(JSON.stringify({ [key]: { a: 'S3' }, n: 1 })))).toEqual({ [key]: hidden, n: 1 })
  })

  test('texts in it', () => {
    expect(redactor.input('{"body":"{\\"token\\":[\\"S3\\"]}"}')).toBe(`{"body":"{\\"token\\":${hidden}}"}`)
  })

  test('what is nested deep, whatever its texts look like', () => {
    const nested = (levels: number) => `${'["]\\"]",'.repeat(levels)}"token=S3"${']'.repeat(levels)}`
    expect(redactor.input(nested(500))).toContain(hidden)
    expect(JSON.parse(redactor.input(nested(501)))).toEqual({
      omitted: 'input that is nested more than 500 levels deep',
    })
    expect(redactor.input(JSON.stringify('['.repeat(2_000)))).toBe(JSON.stringify('['.repeat(2_000)))
  })

  test('what has nothing to hide stays byte for byte', () => {
    for (const json of ['{"n": 12345678901234567890.10}', '{"to":1.0,"ken":2}', '{"note":"token: ", "n":1.0}'])
      expect(redactor.input(json)).toBe(json)
  })
})
