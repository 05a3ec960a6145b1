/** `busbar webhook`: what is done about webhooks from the outside, one command per file. */
import type { AddCommand } from '../program.ts'
import { addWebhookListen } from './webhook-listen.ts'

export const addWebhook: AddCommand = (program, run) => {
  const webhook = program.command('webhook').description('receive webhooks').helpCommand(false)
  addWebhookListen(webhook, run)
}
