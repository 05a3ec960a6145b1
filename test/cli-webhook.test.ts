/** `busbar webhook listen`, as a process: what it shows, and how it ends. */
import { randomBytes } from 'node:crypto'
import { createServer } from 'node:http'
import { describe, expect, onTestFinished, test } from 'vitest'
import { newSecret, publicKeyOf } from '../src/webhook-signature.ts'
import { callCli, jsonLines, runCli, startCli } from './support/cli.ts'
import { eventually } from './support/eventually.ts'
import type { Child } from './support/process.ts'
import { batchOf, post, requestOf, secret } from './support/webhooks.ts'

/** Starts it on a free port; the address where it listens. */
async function listening(args: readonly string[] = [], env: Record<string, string> = {}) {
  const child = startCli(['webhook', 'listen', '--port', '0', ...args], env)
  const url = await eventually(() => /http:\/\/127\.0\.0\.1:\d+\//.exec(child.stderr.join('\n'))?.[0] ?? false)
  return { child, url }
}

const noted = (child: Child) => jsonLines(child.stderr.join('\n'))

describe('[W20] busbar webhook listen', () => {
  test('verifies what comes, and shows it as tail does', async () => {
    const { child, url } = await listening(['--secret', secret])
    await eventually(() => child.stderr.some((line) => line.endsWith('any path. Signatures are verified.')))
    const time = 1_769_860_800_123
    const batch = batchOf([
      { seq: 20, json: '{"b":1.0,"a":2}', time },
      { seq: 30, key: '\u001b[31m', type: 'mail.sent', time },
    ])
    expect((await post(`${url}any/path?at=all`, batch)).status).toBe(204)
    const [first, second] = await eventually(() => child.stdout.length === 2 && child.stdout)
    expect(first).toMatch(/^2026-01-31T12:00:00\.123Z +3-20 +acme +order\.paid +order:1 +\{"b":1\.0,"a":2\}$/)
    expect(second).toMatch(/ 3-30 +acme +mail\.sent +\\u001b\[31m +null$/)
    expect(child.stderr).toContain(`batch ${batch.id} of acme-erp: 2 events`)

    expect((await post(url, { ...batch, body: `${batch.body} ` })).status).toBe(401)
    await eventually(() => child.stderr.some((line) => line.startsWith('refused with 401 WEBHOOK_SIGNATURE_REFUSED: ')))
    // What is sent again is shown again.
    expect((await post(url, batch)).status).toBe(204)
    await eventually(() => child.stdout.length === 4)
    child.kill('SIGINT')
    expect(await child.exited).toEqual({ code: 0, signal: null })
  })

  test('--json: the lines of tail, byte for byte, and the rest on stderr', async () => {
    const key = newSecret(randomBytes, 'whsk_')
    const { child, url } = await listening(['--json', '--limit', '3'], {
      WEBHOOK_SECRET: `${secret} ${publicKeyOf(key)}`,
    })
    const json = '{"b":12345678901234567890.10,"a":"ü€😀"}'
    const batch = batchOf([{ seq: 1, json, time: 5 }], { secrets: [key], format: 'cloudevents-batch' })
    expect((await post(url, batch)).status).toBe(204)
    expect((await post(url, requestOf('{}'))).status).toBe(400)
    expect((await post(url, batchOf([{ seq: 2 }, { seq: 3 }, { seq: 4 }]))).status).toBe(204)
    expect(await child.exited).toEqual({ code: 0, signal: null })
    expect(child.stdout[0]).toBe(
      `{"id":"3-1","seq":1,"prev":null,"type":"order.paid","tenant":"acme","key":"order:1","time":5,"data":${json}}`,
    )
    expect(jsonLines(child.stdout.join('\n')).map(({ seq }) => seq)).toEqual([1, 2, 3])
    expect(noted(child)).toEqual([
      { listening: { url, verifies: true } },
      { batch: { id: batch.id, format: 'cloudevents-batch', subscription: null, events: 1 } },
      { refused: { code: 'BODY_INVALID', status: 400, message: 'The request body has no "events".' } },
      { batch: { id: expect.any(String), format: 'busbar', subscription: 'acme-erp', events: 3 } },
    ])
  })

  test('without a secret nothing is verified, and it says so', async () => {
    const { child, url } = await listening()
    await eventually(() => child.stderr.some((line) => line.startsWith('Signatures are not verified: --secret takes ')))
    const { body } = batchOf([{ seq: 1 }])
    expect((await post(url, { headers: { 'content-type': 'application/json' }, body })).status).toBe(204)
    await eventually(() => child.stdout.length === 1)
    child.kill('SIGTERM')
    expect(await child.exited).toEqual({ code: 0, signal: null })
  })

  test('a secret, port or address that cannot be used', async () => {
    const server = createServer().listen(0, '127.0.0.1')
    onTestFinished(() => void server.close())
    await eventually(() => server.listening)
    const { port } = server.address() as { port: number }
    const wrong: [string[], RegExp][] = [
      [
        ['--secret', 'hunter2'],
        /^error PARAMETER_INVALID: Parameter "secret" must be "whsec_" .* got another text of 7 characters\.\n$/,
      ],
      [['--secret', newSecret(randomBytes, 'whsk_')], /this is a private key, which only the sender has/],
      [['--port', String(port)], /"port" is in use on 127\.0\.0\.1: choose another, or 0 for a free one; got \d+\.\n$/],
      [['--port', '65536'], /"port" must be a whole number from 0 to 65535; got 65536/],
      [['--host', '192.0.2.1', '--port', '0'], /"host" must be an address of this machine; got "192\.0\.2\.1"/],
    ]
    for (const [args, says] of wrong) {
      const { code, stderr, stdout } = await callCli(['webhook', 'listen', ...args])
      expect([args, code, stdout]).toEqual([args, 2, ''])
      expect(stderr).toMatch(says)
    }
    expect(await runCli(['webhook'])).toMatchObject({ code: 2, stderr: expect.stringContaining('listen') })
  })
})
