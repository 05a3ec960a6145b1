/** The headers that a subscription adds: what it may not set, and that no value becomes more than one line. */
import { expect, test } from 'vitest'
import type { BusbarError } from '../../src/errors.ts'
import { checkHeaders, type HeaderRules } from '../../src/sinks/webhook/headers.ts'
import { posterOf, receiver } from './receivers.ts'

function problems(headers: unknown, rules?: HeaderRules): string[] {
  try {
    checkHeaders(headers, rules)
    return []
  } catch (error) {
    expect(error).toMatchObject({ code: 'WEBHOOK_HEADERS_INVALID', status: 400, retryable: false })
    return (error as BusbarError).details.problems as string[]
  }
}
const isRefused = (headers: unknown, rules?: HeaderRules): boolean => problems(headers, rules).length === 1

test('[W22] custom headers come out with their names in lower case, and arrive as they are', async () => {
  const heard: string[] = []
  const at = await receiver((socket) =>
    socket.on('data', (data) => {
      heard.push(data.toString())
      socket.write('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n')
    }),
  )
  const headers = checkHeaders({
    'X-Api-Key': 'se cret\t~!',
    Authorization: 'Bearer abc',
    "x!#$%&'*+.^_`|~9": '{"a":1}',
  })
  expect(headers).toEqual({ 'x-api-key': 'se cret\t~!', authorization: 'Bearer abc', "x!#$%&'*+.^_`|~9": '{"a":1}' })
  expect(await posterOf().post({ url: at.url, headers, body: '{}' })).toMatchObject({ status: 200 })
  const lines = heard.join('').split('\r\n')
  for (const line of ['x-api-key: se cret\t~!', 'authorization: Bearer abc', `x!#$%&'*+.^_\`|~9: {"a":1}`])
    expect(lines).toContain(line)
  expect(checkHeaders({})).toEqual({})
})

test('[W22] what makes up the request, its signature and its host cannot be set, however it is written', () => {
  const ours = [
    ...[
      'host',
      'connection',
      'keep-alive',
      'transfer-encoding',
      'te',
      'trailer',
      'upgrade',
      'expect',
      'http2-settings',
    ],
    ...['content-length', 'content-type', 'content-encoding', 'content-anything', 'user-agent', 'accept-encoding'],
    ...['webhook-id', 'webhook-timestamp', 'webhook-signature', 'webhook-', 'proxy-authorization', 'proxy-connection'],
    ...[':authority', ':path'],
  ]
  for (const name of ours)
    for (const written of [name, name.toUpperCase(), name[0]!.toUpperCase() + name.slice(1)])
      expect(problems({ [written]: 'a' }), written).toEqual([`"${name}" is set by Busbar`])
})

test('[W22] no value ends its line, and no name is anything but a name', () => {
  for (let code = 0; code < 0x20; code += 1) {
    const sign = String.fromCharCode(code)
    if (sign !== '\t') expect(isRefused({ 'x-a': `a${sign}b` }), `value with ${code}`).toBe(true)
    expect(isRefused({ [`x-a${sign}`]: 'a' }), `name with ${code}`).toBe(true)
  }
  const values = [
    'a\r\nx-b: c',
    'a\nb',
    'a\rb',
    'a\0b',
    'a\u007fb',
    'a\u0085b',
    'a\u2028b',
    'ü',
    '€',
    '',
    ' ',
    ' a',
    'a ',
    '\ta',
    'a\u010ab',
    'a\u560db',
  ]
  expect(values.filter((value) => !isRefused({ 'x-a': value }))).toEqual([])
  const names = [
    '',
    ' ',
    'x a',
    'x:a',
    'x-a:',
    'x(a',
    'x/a',
    'x"a',
    'x{a}',
    'ü',
    'x\u212a',
    '\u212aeep-alive',
    'x,a',
    'x;a',
    'x=a',
    'x@a',
    'x[a]',
  ]
  expect(names.filter((name) => !isRefused({ [name]: 'a' }))).toEqual([])
  expect(
    [1, true, null, undefined, ['a'], { a: 1 }, Symbol('a')].filter((value) => !isRefused({ 'x-a': value })),
  ).toEqual([])
})

test('[W22] bounded in number and size', () => {
  const some = (count: number, value = 'a') =>
    Object.fromEntries(Array.from({ length: count }, (_, n) => [`x-${n}`, value]))
  expect(problems(some(20))).toEqual([])
  expect(problems(some(21))).toEqual(['there are 21 headers; the limit is 20'])
  expect(problems(some(10_000, '\n')).length).toBe(21)
  expect(problems({ 'x-a': 'a'.repeat(4_096) })).toEqual([])
  expect(problems({ 'x-a': 'a'.repeat(4_097) })).toEqual(['"x-a" is longer than 4096 characters'])
  expect(problems({ ['x'.repeat(100)]: 'a' })).toEqual([])
  expect(isRefused({ ['x'.repeat(101)]: 'a' })).toBe(true)
  expect(problems(some(3, 'a'.repeat(3_000)))).toEqual(['all headers together have 9009 bytes; the limit is 8192'])
})

test('[W22] all that is wrong is said at once, without the values', () => {
  const given = {
    'x-fine': 'a',
    Host: 'secret',
    'x-a': 'secret\r\n',
    'X-Twice': 'secret',
    'x-twice': 'secret',
    'x b': 'secret',
  }
  expect(() => checkHeaders(given)).toThrow(
    expect.objectContaining({
      message: [
        "4 things of the webhook's headers are not usable:",
        '  - "host" is set by Busbar',
        '  - "x-a" must be visible ASCII, without line ends and without spaces around it',
        `  - "x b" is not a header's name: letters, digits and - are`,
        '  - "x-twice" is given more than once',
      ].join('\n'),
    }),
  )
  for (const none of [null, undefined, 'x-a: b', 7, ['x-a', 'b']]) expect(isRefused(none), String(none)).toBe(true)
  expect(Object.keys(checkHeaders(JSON.parse('{"__proto__":"a"}')))).toEqual(['__proto__'])
})

test('[W22] authorization is the subscription’s own to set, unless it has credentials', () => {
  expect(problems({ authorization: 'Bearer a' })).toEqual([])
  expect(problems({ Authorization: 'Bearer a' }, { hasCredentials: true })).toEqual([
    '"authorization" would replace the credentials of the subscription',
  ])
})
