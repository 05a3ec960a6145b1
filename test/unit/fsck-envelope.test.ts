/** Which envelopes fsck accepts. */
import { describe, expect, test } from 'vitest'
import { limits } from '../../src/event.ts'
import { judgeEnvelope } from '../../src/log/fsck-judge.ts'
import { envelopeOf } from '../support/partition.ts'

const long = 'x'.repeat(300)
const badEnvelopes: Record<string, [envelope: string | Buffer, problem: string]> = {
  'not UTF-8': [Buffer.concat([Buffer.from(envelopeOf('', 'mail')), Buffer.from([0xff])]), 'UTF-8'],
  'no header': ['hello', 'does not begin with type and tenant'],
  'tenant before type': ['{"tenant":"acme","type":"mail"}\n1', 'does not begin with type and tenant'],
  'a header that ends early': ['{"type":"mail","tenant":"acme","key"}\n1', 'not JSON'],
  'a header alone': ['{"type":"mail","tenant":"acme"}', 'no line of data'],
  'an empty segment in the type': ['{"type":"a..b","tenant":"acme"}\n1', '"type"'],
  'a type over the limit': [`{"type":"${long}","tenant":"acme"}\n1`, `${limits.typeBytes} bytes`],
  'a tenant with a space': ['{"type":"mail","tenant":"a b"}\n1', '"tenant"'],
  'an empty key': ['{"type":"mail","tenant":"acme","key":""}\n1', '"key"'],
  'a key that is a number': ['{"type":"mail","tenant":"acme","key":7}\n1', '"key"'],
  'a key over the limit': [`{"type":"mail","tenant":"acme","key":"${long}"}\n1`, `${limits.keyBytes} bytes`],
  'a time before the epoch': ['{"type":"mail","tenant":"acme","time":-1}\n1', '"time"'],
  'a trace over the limit': [`{"type":"mail","tenant":"acme","trace":"${long}"}\n1`, '"trace"'],
  'two types': ['{"type":"mail","tenant":"acme","type":"order"}\n1', 'two types'],
  'no data': ['{"type":"mail","tenant":"acme"}\n', 'not JSON'],
  'data that is not JSON': ['{"type":"mail","tenant":"acme"}\n{', 'not JSON'],
  'data over the limit': [`{"type":"mail","tenant":"acme"}\n"${'x'.repeat(limits.dataBytes)}"`, `${limits.dataBytes}`],
}

describe('an envelope', () => {
  test.each(Object.keys(badEnvelopes))('with %s is refused', (name) => {
    const [envelope, problem] = badEnvelopes[name]!
    expect(judgeEnvelope(Buffer.from(envelope as string))).toEqual({ problem: expect.stringContaining(problem) })
  })

  test.each([
    ['', envelopeOf('', 'mail', { deep: [1, 'ü'] })],
    ['acme/a\n"b', envelopeOf('acme/a\n"b', 'a.b-c_d.E', null, { time: 0, trace: 't' })],
    ['acme/a', '{"type":"mail","tenant":"acme","key":"a","later":1}\n 12345678901234567890 '],
    [`acme/${'k'.repeat(limits.keyBytes)}`, envelopeOf(`acme/${'k'.repeat(limits.keyBytes)}`)],
  ])('of object %j is read', (object, envelope) => {
    expect(judgeEnvelope(Buffer.from(envelope))).toEqual({ object })
  })
})
