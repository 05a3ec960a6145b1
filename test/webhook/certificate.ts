/** Certificates of no authority, made on the spot: DER by hand, signed by their own key. */
import { createSign, generateKeyPairSync } from 'node:crypto'

export interface Certificate {
  key: string
  cert: string
}

const der = (tag: number, ...parts: Uint8Array[]): Buffer => {
  const content = Buffer.concat(parts)
  const { length } = content
  const size = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255]
  return Buffer.concat([Buffer.from([tag, ...size]), content])
}
const sequence = (...parts: Uint8Array[]) => der(0x30, ...parts)
const hex = (text: string) => Buffer.from(text, 'hex')
const ecdsaWithSha256 = sequence(der(0x06, hex('2a8648ce3d040302')))
const time = (at: Date) => der(0x18, Buffer.from(`${at.toISOString().slice(0, 19).replace(/[-T:]/g, '')}Z`))
const nameOf = (text: string) => sequence(der(0x31, sequence(der(0x06, hex('550403')), der(0x0c, Buffer.from(text)))))
const extension = (id: string, value: Uint8Array) => sequence(der(0x06, hex(id)), der(0x04, value))

const dayMs = 86_400_000

export function selfSigned(host: string, { untilMs = Date.now() + dayMs } = {}): Certificate {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const facts = sequence(
    der(0xa0, der(0x02, hex('02'))),
    der(0x02, hex('01')),
    ecdsaWithSha256,
    nameOf(host),
    sequence(time(new Date(Date.now() - 10 * dayMs)), time(new Date(untilMs))),
    nameOf(host),
    publicKey.export({ type: 'spki', format: 'der' }),
    der(
      0xa3,
      sequence(
        extension('551d13', sequence(der(0x01, hex('ff')))),
        extension('551d11', sequence(der(0x82, Buffer.from(host)))),
      ),
    ),
  )
  const signature = createSign('sha256').update(facts).sign(privateKey)
  const whole = sequence(facts, ecdsaWithSha256, der(0x03, hex('00'), signature))
  return {
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }) as string,
    cert: `-----BEGIN CERTIFICATE-----\n${whole.toString('base64').replace(/.{64}/g, '$&\n')}\n-----END CERTIFICATE-----\n`,
  }
}
