/**
 * `busbar webhook listen`: a receiver on this machine that verifies what comes and shows it.
 *
 * It shows every attempt, and so handles nothing once: what is sent again is shown again. No Redis is needed.
 */
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Command } from 'commander'
import { handled, refusalOf, refused } from '../../client/answer.ts'
import { type Batch, readBatch } from '../../client/batch.ts'
import { type Door, type HeadersLike, headerOf } from '../../client/door.ts'
import { nodeListener } from '../../client/node.ts'
import { receiver } from '../../client/receiver.ts'
import { BusbarError, shown } from '../../errors.ts'
import { checkSecret, signatureHeaders } from '../../webhook-signature.ts'
import { createEventRows } from '../event-row.ts'
import { exitCodes } from '../exit.ts'
import { countOption, numberOption } from '../options.ts'
import type { Output } from '../output.ts'
import { printable } from '../printable.ts'
import type { Runner } from '../program.ts'
import type { Session } from '../session.ts'
import { onEndRequest, whenAborted } from '../signals.ts'
import { countOf } from '../stream-tables.ts'

interface Options {
  port: number
  host: string
  secret?: string[]
  limit?: number
}

const secretVariable = 'WEBHOOK_SECRET'

export function addWebhookListen(webhook: Command, run: Runner): void {
  webhook
    .command('listen')
    .description('receive webhooks on this machine, verify them and show their events')
    .option('--port <port>', 'where to listen; 0 takes a free one', numberOption('port'), 7476)
    .option('--host <address>', 'on which address; any other one is reachable from elsewhere', '127.0.0.1')
    .option(
      '--secret <secret>',
      `of the subscription, or its public key; may be given again (default: ${secretVariable})`,
      gathered,
    )
    .option('--limit <n>', 'end after this many events', countOption('limit'))
    .action(run(listen))
}

const gathered = (value: string, before: string[] = []): string[] => [...before, value]

async function listen(session: Session, options: Options) {
  const { out, io } = session
  using end = onEndRequest()
  const secrets = options.secret ?? io.env[secretVariable]?.split(/\s+/).filter((text) => text !== '') ?? []
  for (const secret of secrets) checkSecret(secret, 'verify')
  const enough = new AbortController()
  const server = createServer(nodeListener(doorOf({ secrets, out, limit: options.limit, enough })))
  const url = await listenOn(server, options)
  sayListening(url, secrets, out)
  await Promise.race([end.whenAsked, whenAborted(out.closed), whenAborted(enough.signal)])
  await close(server)
  return exitCodes.ok
}

interface Listening {
  secrets: readonly string[]
  out: Output
  limit: number | undefined
  /** Aborted when `limit` events were shown. */
  enough: AbortController
}

const maxBytes = 64 * 1024 * 1024

function doorOf({ secrets, out, limit = Number.POSITIVE_INFINITY, enough }: Listening): Door {
  const read = secrets.length > 0 ? receiver({ secret: secrets, maxBytes }).verify : readUnverified
  const row = createEventRows(out)
  let count = 0
  return {
    maxBytes,
    async handle(headers, body) {
      const batch = await read(headers, body)
      sayBatch(batch, out)
      for (const event of batch.events) {
        if (count === limit) break
        count += 1
        await (out.json ? out.printJsonText(event.toText()) : out.print(row(event)))
      }
      if (count === limit) enough.abort()
      return handled()
    },
    refuse(error) {
      const refusal = refusalOf(error)
      sayRefused(refusal, out)
      return refused(refusal)
    },
  }
}

async function readUnverified(headers: HeadersLike, body: string | Uint8Array): Promise<Batch> {
  const id = headerOf(headers, signatureHeaders.id) ?? 'without-id'
  return readBatch({ id, contentType: headerOf(headers, 'content-type'), body })
}

async function listenOn(server: Server, { port, host }: Options): Promise<string> {
  try {
    await once(server.listen(port, host), 'listening')
  } catch (error) {
    throw cannotListen(error as NodeJS.ErrnoException, port, host)
  }
  const { address, family, port: taken } = server.address() as AddressInfo
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${taken}/`
}

function cannotListen(error: NodeJS.ErrnoException, port: number, host: string): unknown {
  const of = (name: string, value: unknown, problem: string) =>
    BusbarError.of('PARAMETER_INVALID', { name, value: shown(value), problem }, error)
  switch (error.code) {
    case 'EADDRINUSE':
      return of('port', port, `is in use on ${host}: choose another, or 0 for a free one`)
    case 'EACCES':
      return of('port', port, 'may not be used by this user: choose one above 1023')
    case 'ERR_SOCKET_BAD_PORT':
      return of('port', port, 'must be a whole number from 0 to 65535')
    case 'EADDRNOTAVAIL':
    case 'ENOTFOUND':
      return of('host', host, 'must be an address of this machine')
  }
  return error
}

const closeTimeoutMs = 1_000

/** What has begun is answered; connections that are only kept open are not waited for. */
async function close(server: Server): Promise<void> {
  const closed = once(server, 'close')
  server.close()
  const timer = setTimeout(() => server.closeAllConnections(), closeTimeoutMs)
  await closed
  clearTimeout(timer)
}

function sayListening(url: string, secrets: readonly string[], out: Output): void {
  const verifies = secrets.length > 0
  if (out.json) return out.noteJson({ listening: { url, verifies } })
  out.note(`Listening on ${url}, any path. ${verifies ? 'Signatures are verified.' : ''}`.trimEnd())
  if (!verifies)
    out.note(out.errorColors.yellow('Signatures are not verified: --secret takes the secret of the subscription.'))
}

function sayBatch({ id, format, subscription, events }: Batch, out: Output): void {
  if (out.json) return out.noteJson({ batch: { id, format, subscription, events: events.length } })
  const from = subscription === null ? '' : ` of ${printable(subscription)}`
  out.note(out.errorColors.dim(`batch ${printable(id)}${from}: ${countOf(events.length, 'event')}`))
}

function sayRefused({ code, message, status }: BusbarError, out: Output): void {
  if (out.json) return out.noteJson({ refused: { code, status, message } })
  out.note(`${out.errorColors.red(`refused with ${status} ${code}:`)} ${printable(message)}`)
}
