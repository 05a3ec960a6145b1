/** Signatures of webhooks, against the package of Standard Webhooks in both directions, and against its published vectors. */
import { randomBytes } from 'node:crypto'
import fc from 'fast-check'
import { Webhook } from 'standardwebhooks'
import { describe, expect, test } from 'vitest'
import { BusbarError } from '../../src/errors.ts'
import {
  checkSecret,
  newSecret,
  publicKeyOf,
  type SignedRequest,
  signatures,
  verify,
} from '../../src/webhook-signature.ts'

const id = 'msg_p5jXN8AQM9LWM0D4loKWxJek'
const body = '{"test": 2432232314}'
const secret = newSecret(randomBytes)
const nowSeconds = () => Math.floor(Date.now() / 1_000)

function requestBy(secrets: readonly string[], { timestamp = nowSeconds(), text = body } = {}): SignedRequest {
  return { id, timestamp: String(timestamp), signature: signatures({ id, timestamp, body: text }, secrets), body: text }
}

const headersOf = ({ id, timestamp, signature }: SignedRequest) => ({
  'webhook-id': id!,
  'webhook-timestamp': timestamp!,
  'webhook-signature': signature!,
})

const verified = (request: SignedRequest, secrets: readonly string[], nowMs = Date.now(), toleranceMs?: number) =>
  verify(request, { secrets, nowMs, ...(toleranceMs === undefined ? {} : { toleranceMs }) })

/** The code of the refusal, and its message. */
function refusal(call: () => unknown): string {
  try {
    call()
  } catch (error) {
    return error instanceof BusbarError ? `${error.code} ${error.status}: ${error.message}` : String(error)
  }
  return 'verified'
}

const anyBody = fc.oneof(fc.json(), fc.string({ unit: 'grapheme' }))

describe('[W05] the package of Standard Webhooks', () => {
  test('verifies what is signed here, whatever the body', () => {
    fc.assert(
      fc.property(anyBody, fc.uint8Array({ minLength: 24, maxLength: 64 }), (text, bytes) => {
        const own = `whsec_${Buffer.from(bytes).toString('base64')}`
        const request = requestBy([own], { text })
        new Webhook(own).verify(text, headersOf(request), { jsonParse: false })
      }),
    )
  })

  test('signs what is verified here, as text and as bytes', () => {
    fc.assert(
      fc.property(anyBody, (text) => {
        const timestamp = nowSeconds()
        const signature = new Webhook(secret).sign(id, new Date(timestamp * 1_000), text)
        for (const sent of [text, Buffer.from(text)])
          expect(verified({ id, timestamp: String(timestamp), signature, body: sent }, [secret])).toEqual({
            id,
            timestamp,
          })
      }),
    )
  })

  test('refuses what is refused here: another body, id, time or secret', () => {
    const request = requestBy([secret])
    const wrong: [Partial<SignedRequest>, string][] = [
      [{ body: `${body} ` }, secret],
      [{ id: `${id}1` }, secret],
      [{ timestamp: String(Number(request.timestamp) - 1) }, secret],
      [{ signature: 'v1,' }, secret],
      [{ signature: `v1a,${request.signature!.slice(3)}` }, secret],
      [{ signature: request.signature!.replace(/.$/, '') }, secret],
      [{}, newSecret(randomBytes)],
    ]
    for (const [change, by] of wrong) {
      const changed = { ...request, ...change }
      expect(() => new Webhook(by).verify(changed.body as string, headersOf(changed))).toThrow('No matching signature')
      expect(refusal(() => verified(changed, [by]))).toMatch(/^WEBHOOK_SIGNATURE_REFUSED 401: /)
    }
  })

  test('finds its signature among those of a rotation, and so does this one', () => {
    const [old, next, stranger] = [newSecret(randomBytes), newSecret(randomBytes), newSecret(randomBytes)]
    const overlap = requestBy([next, newSecret(randomBytes, 'whsk_'), old])
    for (const by of [old, next]) {
      new Webhook(by).verify(body, headersOf(overlap))
      expect(verified(overlap, [by]).id).toBe(id)
    }
    expect(refusal(() => verified(overlap, [stranger]))).toContain('None of the 3 signatures is by a secret')
    expect(verified(requestBy([old]), [next, old]).id).toBe(id)
    expect(verified(requestBy([next]), [next, old]).id).toBe(id)
  })
})

describe('published vectors', () => {
  test('HMAC', () => {
    const shared = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'
    expect(signatures({ id, timestamp: 1614265330, body }, [shared])).toBe(
      'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
    )
  })

  test('ed25519', () => {
    const key = 'whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk='
    expect(signatures({ id, timestamp: 1614265330, body }, [key])).toBe(
      'v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7KaaBRdM5WqyeFiL8Ag==',
    )
  })
})

describe('ed25519', () => {
  const key = newSecret(randomBytes, 'whsk_')
  const publicKey = publicKeyOf(key)

  test('what the private key has signed, the public key verifies, beside shared secrets too', () => {
    expect(publicKey).toMatch(/^whpk_[A-Za-z0-9+/]{43}=$/)
    expect(verified(requestBy([key]), [publicKey]).id).toBe(id)
    expect(verified(requestBy([secret, key]), [newSecret(randomBytes), publicKey]).id).toBe(id)
    expect(verified({ ...requestBy([key]), body: Buffer.from(body) }, [publicKey]).id).toBe(id)
  })

  test('nothing else does, and nothing else is', () => {
    const other = publicKeyOf(newSecret(randomBytes, 'whsk_'))
    const request = requestBy([key])
    const refused: [SignedRequest, string][] = [
      [request, other],
      [{ ...request, body: `${body} ` }, publicKey],
      [{ ...request, signature: 'v1a,AAAA' }, publicKey],
      [{ ...request, signature: `v1,${request.signature!.slice(4)}` }, publicKey],
      [requestBy([secret]), publicKey],
      [request, `whpk_${Buffer.alloc(32, 255).toString('base64')}`],
    ]
    for (const [given, by] of refused)
      expect(refusal(() => verified(given, [by]))).toMatch(/^WEBHOOK_SIGNATURE_REFUSED 401: The signature is not by a /)
  })

  test('a private key may have its public one behind it', () => {
    const seed = Buffer.from(key.slice(5), 'base64')
    const both = `whsk_${Buffer.concat([seed, Buffer.from(publicKey.slice(5), 'base64')]).toString('base64')}`
    expect(publicKeyOf(both)).toBe(publicKey)
    expect(verified(requestBy([both]), [publicKey]).id).toBe(id)
  })
})

describe('time', () => {
  const sentMs = 1_700_000_000_000
  const request = requestBy([secret], { timestamp: sentMs / 1_000 })

  test('five minutes to either side, or the tolerance that is given', () => {
    for (const offMs of [0, 300_000, -300_000]) expect(verified(request, [secret], sentMs + offMs).id).toBe(id)
    expect(refusal(() => verified(request, [secret], sentMs + 301_000))).toBe(
      'WEBHOOK_TIMESTAMP_REFUSED 401: webhook-timestamp must be seconds since the epoch, at most 300 s from now; ' +
        'got "1700000000", which is 301 s ago. Check the clocks of both sides.',
    )
    expect(refusal(() => verified(request, [secret], sentMs - 301_000))).toContain('which is 301 s ahead')
    expect(verified(request, [secret], sentMs + 3_600_000, 3_600_000).id).toBe(id)
    expect(refusal(() => verified(request, [secret], sentMs + 2_000, 1_000))).toContain('at most 1 s from now')
  })

  test('only as it is signed: nothing that is merely read as the same number', () => {
    for (const timestamp of [
      '01700000000',
      '1700000000.0',
      '+1700000000',
      ' 1700000000',
      '1.7e9',
      'now',
      '1700000000000',
    ])
      expect(refusal(() => verified({ ...request, timestamp }, [secret], sentMs))).toMatch(/^WEBHOOK_TIMESTAMP_REFUSED/)
  })
})

test('a header that is missing or empty is named', () => {
  const request = requestBy([secret])
  expect(refusal(() => verified({ ...request, id: undefined }, [secret]))).toMatch(
    /^WEBHOOK_UNSIGNED 401: This request is not signed: webhook-id is missing\. /,
  )
  const bare = { id: '', timestamp: undefined, signature: '', body }
  expect(refusal(() => verified(bare, [secret]))).toContain(
    'webhook-id, webhook-timestamp, webhook-signature are missing',
  )
})

test('only so many signatures are looked at', () => {
  const { signature, ...request } = requestBy([secret])
  const among = (n: number) => ({ ...request, signature: [...Array(n).fill('v1,x'), signature].join(' ') })
  expect(verified(among(19), [secret]).id).toBe(id)
  expect(refusal(() => verified(among(20), [secret]))).toContain('None of the 20 signatures')
})

describe('secrets', () => {
  const bytes = (n: number) => randomBytes(n).toString('base64')

  test('a new one is of its kind, and another one each time', () => {
    expect(newSecret(randomBytes)).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/)
    expect(newSecret(randomBytes, 'whsk_')).toMatch(/^whsk_[A-Za-z0-9+/]{43}=$/)
    expect(newSecret(randomBytes)).not.toBe(newSecret(randomBytes))
    expect(checkSecret(newSecret(randomBytes))).toMatch(/^whsec_/)
  })

  test('24 to 64 bytes, in base64 as every library reads it', () => {
    for (const n of [24, 32, 64]) expect(checkSecret(`whsec_${bytes(n)}`)).toContain('whsec_')
    const wrong = [
      ...[
        `whsec_${bytes(23)}`,
        `whsec_${bytes(65)}`,
        bytes(32),
        `whsec_${bytes(32)}\n`,
        `whsec_${bytes(32).slice(0, -1)}`,
      ],
      ...[
        `whsec_${bytes(32).replace(/.{2}=$/, '-_=')}`,
        `WHSEC_${bytes(32)}`,
        `whsk_${bytes(31)}`,
        'whsec_',
        '',
        7,
        null,
      ],
      ...[undefined, {}, [`whsec_${bytes(32)}`]],
    ]
    for (const given of wrong) expect(refusal(() => checkSecret(given))).toMatch(/^PARAMETER_INVALID 400: .*"whsec_"/)
  })

  test('each is of its use: who verifies has no private key, who signs no public one', () => {
    const key = newSecret(randomBytes, 'whsk_')
    expect(checkSecret(key)).toBe(key)
    expect(checkSecret(publicKeyOf(key), 'verify')).toBe(publicKeyOf(key))
    expect(refusal(() => checkSecret(key, 'verify'))).toContain('this is a private key, which only the sender has')
    expect(refusal(() => checkSecret(publicKeyOf(key)))).toContain('this is a public key')
    expect(refusal(() => publicKeyOf(secret))).toMatch(/^PARAMETER_INVALID 400: .*"whsk_"/)
    expect(refusal(() => signatures({ id, timestamp: 1, body }, [publicKeyOf(key)]))).toMatch(/^PARAMETER_INVALID/)
  })

  test('no message holds what was given', () => {
    for (const given of ['hunter2hunter2', secret.slice(0, -1), `${secret}x`, newSecret(randomBytes, 'whsk_')]) {
      const said = [refusal(() => checkSecret(given, 'verify')), refusal(() => verified(requestBy([secret]), [given]))]
      for (const message of said) {
        expect(message).toMatch(/^PARAMETER_INVALID/)
        expect(message).not.toContain(given.slice(6, 20))
      }
    }
  })
})
